/*
 * iser URL INITIATOR FILE: writes the file's bytes to the beginning of a disk by libiscsi, and reads them back. `rdmacm` beside this file
 * builds and runs it; a URL of iser:// takes iSER.
 */
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 512
#define TRANSFER (128 * BLOCK)
#define SIZE (64 * TRANSFER)

static struct iscsi_context *session;

static void must(int is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "%s: %s\n", what, iscsi_get_error(session));
	exit(1);
}

int main(int count, char **words)
{
	unsigned char *bytes = malloc(SIZE);
	struct iscsi_url *url;
	struct scsi_task *task;
	int file;

	if (count != 4) {
		fprintf(stderr, "usage: iser URL INITIATOR FILE\n");
		return 2;
	}
	file = open(words[3], O_RDONLY);
	if (file < 0 || read(file, bytes, SIZE) != SIZE) {
		perror(words[3]);
		return 1;
	}
	session = iscsi_create_context(words[2]);
	must(session != NULL, "context");
	/* It sets the transport, too. */
	url = iscsi_parse_full_url(session, words[1]);
	must(url != NULL, "URL");
	iscsi_set_session_type(session, ISCSI_SESSION_NORMAL);
	must(!iscsi_full_connect_sync(session, url->portal, url->lun), "connect");
	for (int at = 0; at < SIZE; at += TRANSFER) {
		task = iscsi_write10_sync(session, url->lun, at / BLOCK, bytes + at, TRANSFER, BLOCK, 0, 0, 0, 0, 0);
		must(task && task->status == SCSI_STATUS_GOOD, "write");
		scsi_free_scsi_task(task);
	}
	for (int at = 0; at < SIZE; at += TRANSFER) {
		task = iscsi_read10_sync(session, url->lun, at / BLOCK, TRANSFER, BLOCK, 0, 0, 0, 0, 0);
		must(task && task->status == SCSI_STATUS_GOOD, "read");
		must(task->datain.size == TRANSFER && !memcmp(task->datain.data, bytes + at, TRANSFER), "other bytes");
		scsi_free_scsi_task(task);
	}
	must(!iscsi_logout_sync(session), "logout");
	iscsi_destroy_url(url);
	iscsi_destroy_context(session);
	printf("%d bytes are right\n", SIZE);
	return 0;
}
