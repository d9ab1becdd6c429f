// An ordinary program that knows nothing of the heap which its malloc(3) comes from: containers in several threads, forks beside them,
// aligned memory. It prints whether peers could map its objects: whether a memory file lies behind them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        _exit(1);
    }
}

static bool is_in_memory_file(const void *object)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, address = (unsigned long)object;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= address && address < end)
            found = strstr(line, "/memfd:") != nullptr;
    }
    if (maps)
        fclose(maps);
    return found;
}

static void use_containers(int number)
{
    std::map<int, std::string> map;
    for (int i = 0; i < 20000; i++)
        map[i * 7919 % 5000] = std::string(i % 300, 'a' + number);
    std::vector<char> large(10 << 20, 'x');
    for (auto &entry : map)
        for (char letter : entry.second)
            require(letter == 'a' + number, "the letters of a string");
}

int main()
{
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++)
        threads.emplace_back(use_containers, number);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            std::string text(1000, 'c');
            std::vector<int> numbers(100000, 7);
            _exit(text[999] == 'c' && numbers[99999] == 7 ? 0 : 1);
        }
        int status;
        require(waitpid(child, &status, 0) == child && status == 0, "a child that allocates");
    }
    for (auto &thread : threads)
        thread.join();
    void *aligned = nullptr;
    require(!posix_memalign(&aligned, 1 << 20, 100000) && (size_t)aligned % (1 << 20) == 0, "aligned memory");
    char *object = (char *)calloc(1, 100);
    require(object && !object[99], "zeroed memory");
    object = (char *)realloc(object, 1 << 22);
    require(object && !object[99], "what moves stays what it was");
    printf("%d %d\n", is_in_memory_file(object), is_in_memory_file(aligned));
    free(object);
    free(aligned);
    require(!malloc((size_t)1 << 60), "more than there is");
}
