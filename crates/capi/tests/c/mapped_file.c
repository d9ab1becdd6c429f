/* Files as exported memory: mapped_file FOLDER. */
#include "expect.h"

#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[4096], bytes[16];
    pw_node *node;
    pw_mapped_file *file, *read_only, *none = (pw_mapped_file *)&node;
    pw_token whole, part;
    pw_remote *remote;
    int code;

    if (argc != 2 || pw_node_alone(&node))
        pw_die("begin");
    snprintf(path, sizeof path, "%s/file", argv[1]);

    EXPECT(PW_SYSTEM, pw_map_file(node, path, PW_FILE_READ_ONLY, PW_TO_END, &none));
    SAYS("file cannot be mapped");
    REQUIRE(none == NULL);
    EXPECT(PW_SYSTEM, pw_map_file(node, argv[1], PW_FILE_READ_ONLY, PW_TO_END, &none));
    EXPECT(PW_SYSTEM, pw_map_file(node, path, PW_FILE_WRITABLE, PW_TO_END, &none));
    EXPECT(PW_ARGUMENT, pw_map_file(node, path, PW_FILE_READ_ONLY, 4096, &none));
    EXPECT(PW_ARGUMENT, pw_map_file(node, path, 2, 4096, &none));
    EXPECT(PW_ARGUMENT, pw_map_file(node, NULL, PW_FILE_READ_ONLY, PW_TO_END, &none));
    EXPECT(PW_ARGUMENT, pw_map_file(node, path, PW_FILE_READ_ONLY, PW_TO_END, NULL));
    EXPECT(PW_ARGUMENT, pw_map_file(NULL, path, PW_FILE_READ_ONLY, PW_TO_END, &none));

    EXPECT(PW_OK, pw_map_file(node, path, PW_FILE_WRITABLE, 8192, &file));
    REQUIRE(pw_mapped_file_length(file) == 8192 && pw_mapped_file_length(NULL) == 0);
    EXPECT(PW_BOUNDS, pw_mapped_file_export(file, 4096, 4097, PW_READ, &part));
    EXPECT(PW_BOUNDS, pw_mapped_file_export(file, 8193, PW_TO_END, PW_READ, &part));
    EXPECT(PW_ARGUMENT, pw_mapped_file_export(file, 0, PW_TO_END, 0, &part));
    EXPECT(PW_OK, pw_mapped_file_export(file, 0, PW_TO_END, PW_READ, &whole));
    EXPECT(PW_OK, pw_mapped_file_export(file, 4096, 16, PW_READ | PW_WRITE, &part));
    EXPECT(PW_IN_USE, pw_node_leave(node));

    EXPECT(PW_OK, pw_open(node, &part, &remote));
    REQUIRE(pw_remote_length(remote) == 16);
    EXPECT(PW_OK, pw_put(remote, 4, "in the file", 11));
    EXPECT(PW_OK, pw_mapped_file_sync(file));
    EXPECT(PW_OK, pw_unexport(node, &part));
    EXPECT(PW_KEY, pw_get(remote, 0, bytes, 1));
    EXPECT(PW_OK, pw_close(remote));

    EXPECT(PW_OK, pw_map_file(node, path, PW_FILE_READ_ONLY, PW_TO_END, &read_only));
    EXPECT(PW_ENGINE, pw_mapped_file_export(read_only, 0, PW_TO_END, PW_READ | PW_WRITE, &part));
    EXPECT(PW_OK, pw_mapped_file_export(read_only, 4100, 11, PW_READ, &part));
    EXPECT(PW_OK, pw_open(node, &part, &remote));
    EXPECT(PW_OK, pw_get(remote, 0, bytes, 11));
    REQUIRE(!memcmp(bytes, "in the file", 11));

    /* Its pages are gone, and the engine survives that. */
    REQUIRE(truncate(path, 0) == 0);
    code = pw_get(remote, 0, bytes, 11);
    REQUIRE(code == PW_MEMORY || code == PW_KEY);
    EXPECT(PW_OK, pw_mapped_file_close(read_only));
    EXPECT(PW_KEY, pw_get(remote, 0, bytes, 11));
    EXPECT(PW_OK, pw_close(remote));
    EXPECT(PW_OK, pw_mapped_file_close(NULL));
    EXPECT(PW_OK, pw_mapped_file_close(file));
    EXPECT(PW_HANDLE, pw_mapped_file_close(file));
    EXPECT(PW_HANDLE, pw_mapped_file_sync(file));
    EXPECT(PW_OK, pw_node_leave(node));
    return failures != 0;
}
