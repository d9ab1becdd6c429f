/* The processes of the death harness: each is this program in another role, with a socket to the one that started it. */
#ifndef PARTIES_H
#define PARTIES_H

#include "traffic.h"

#include <sys/types.h>

/* The socket of a process that was started. */
#define SOCKET 3
/* Another descriptor that it may have been given. */
#define OTHER 4

struct party {
	pid_t pid;
	int socket;
};

/* Starts this program with these arguments and perhaps another descriptor (else -1); it ends with the thread that
 * starts it. */
struct party start_party(char *const arguments[], int other);

/* To be called first by what start_party has started. */
void follow_starter(void);

/* Sends all bytes. 0: the other side has ended. */
int tell(int socket, const void *bytes, size_t length);

/* Receives all bytes. 0: the other side has ended. */
int hear(int socket, void *bytes, size_t length);

/* Whether there is something to hear, or nothing more will come. */
int has_word(int socket);

/* Waits for its end and gives how it ended, as waitpid(2). */
int end_of(struct party *party);

/* Memory that is used as long as the process lives, aligned to pages. */
char *pages(size_t length);

#endif
