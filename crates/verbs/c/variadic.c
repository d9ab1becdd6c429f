/* Functions with a variable number of arguments, which stable Rust cannot define. */
#include "private.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct verbs_context;
struct ibv_device;

enum { LONGEST_NAME = 256 };

/* In src/sysfs.rs. */
int pagewire_read_device_attribute(char *buffer, size_t size, struct ibv_device *device, const char *file);

/* Messages of the providers' libraries (libmlx5, libefa) about devices that they do not have here. */
void private_verbs_log(struct verbs_context *context, unsigned level, const char *format, ...)
{
	(void)context;
	(void)level;
	(void)format;
}
SINCE_34(private_verbs_log, __verbs_log);

/* A file of a device in sysfs, its name given like an argument list of printf(3): bytes read, or -1. */
int private_read_ibdev_sysfs_file(char *buffer, size_t size, struct ibv_device *device, const char *format, ...)
{
	char name[LONGEST_NAME];
	va_list arguments;
	int length;

	if (!format) {
		errno = EINVAL;
		return -1;
	}
	va_start(arguments, format);
	length = vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	if (length < 0 || length >= LONGEST_NAME) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return pagewire_read_device_attribute(buffer, size, device, name);
}
SINCE_34(private_read_ibdev_sysfs_file, ibv_read_ibdev_sysfs_file);
