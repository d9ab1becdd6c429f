/*
 * The versions of private symbols. rdma-core keeps them in a node of its own, IBVERBS_PRIVATE_NN, which gets another number when one
 * of them changes: 22 (Debian 10), 25 (Ubuntu 20.04), 33 (Debian 11), 34 up to release 56, 57, 59, 64, 65. Each node has all private symbols of
 * its time. Programs and providers' libraries of any of these releases find them here. Node 34 is the default.
 */
#ifndef PRIVATE_H
#define PRIVATE_H

/* Another name of a function, so that it has a version of its own. */
#define VERSION(ours, name, node, at)                                                  \
	extern __typeof(ours) ours##_##node __attribute__((alias(#ours)));             \
	__asm__(".symver " #ours "_" #node "," #name at "IBVERBS_PRIVATE_" #node)

/* A function that is found under a name in a node and in all later ones. */
#define SINCE_65(ours, name) VERSION(ours, name, 65, "@@")
#define SINCE_64(ours, name) VERSION(ours, name, 65, "@"); VERSION(ours, name, 64, "@@")
#define SINCE_59(ours, name) VERSION(ours, name, 65, "@"); VERSION(ours, name, 64, "@"); VERSION(ours, name, 59, "@@")
#define SINCE_34(ours, name)                                                                                    \
	VERSION(ours, name, 65, "@"); VERSION(ours, name, 64, "@"); VERSION(ours, name, 59, "@");               \
	VERSION(ours, name, 57, "@"); VERSION(ours, name, 34, "@@");                                            \
	VERSION(ours, name, 33, "@"); VERSION(ours, name, 25, "@"); VERSION(ours, name, 22, "@")

#endif
