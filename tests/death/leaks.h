/* What a process holds, to be compared before and after. */
#ifndef LEAKS_H
#define LEAKS_H

struct held {
	/* Open descriptors without those of the engine's own buffers (memfd:pagewire-arena), and those: a bounded number of
	 * buffers is kept for reuse. */
	int descriptors, arenas;
	/* Mappings, and kilobytes of anonymous memory that are resident (RssAnon); both without these buffers. */
	int mappings, resident;
	/* Kilobytes that are allocated (mallinfo2(3)): what of the resident memory is in use. */
	int allocated;
	/* Pagewire's different names in the abstract UNIX namespace of this network namespace. */
	int names;
	/* Pagewire's files in /dev/shm. */
	int files;
};

struct held what_is_held(void);

/* The descriptors alone, without those of the engine's own buffers. */
int descriptors_held(void);

#endif
