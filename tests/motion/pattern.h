/* Bytes that tell where they come from and where they belong. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The upper bits of a byte. A byte of 0 was lost with the page it stood on. */
enum {
	AROUND = 0x20, /* beside a region: nobody may change or send it */
	MOVER = 0x40,  /* the moving end wrote it */
	PEER = 0x80,   /* the other end sent it */
	AFTER = 0xC0,  /* the moving end wrote it after ibv_dereg_mr had returned: nobody may change or send it */
	EMPTY = 0x1F,  /* the other end expects something in its place */
};

/* What stands at an offset of a region: 64 values that follow each other without a short period. */
static inline unsigned char pattern(unsigned char class, size_t offset)
{
	unsigned char place = (offset * 0x9E3779B97F4A7C15u) >> 58;

	return class | (class == AROUND ? place >> 1 : place);
}

static inline void fill(char *bytes, unsigned char class, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern(class, offset + i);
}

/* The first byte that belongs to none of these; `length` if all do. */
static inline size_t first_wrong(const char *bytes, size_t offset, size_t length, bool mover, bool peer, bool lost)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = bytes[i];

		if (mover && byte == pattern(MOVER, offset + i))
			continue;
		if (peer && byte == pattern(PEER, offset + i))
			continue;
		if (lost && byte == 0)
			continue;
		return i;
	}
	return length;
}

static inline size_t first_not(const char *bytes, unsigned char class, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)bytes[i] != pattern(class, offset + i))
			return i;
	}
	return length;
}

static inline size_t first_filled(const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != EMPTY)
			return i;
	}
	return length;
}

#endif
