/*
 * Every name by which a program loads libibverbs gives this library: a second one beside it would find no devices, and two libraries would
 * share the names of their functions.
 *
 * dlopen(3) and dlmopen(3) stand before those of the C library. A name of libibverbs becomes the path of this library. All other calls
 * go on by a jump, not by a call: the C library looks at the return address to know whose search path (RUNPATH) and whose namespace hold.
 * A library of the dynamic loader's auditing interface (rtld-audit(7)) would see each name, too. Before glibc 2.35 it makes each call
 * between libraries slower, and it brings a second C library into each process.
 *
 * Calls that do not come here are those of libraries that were opened with RTLD_DEEPBIND: they find the C library's functions first. For them, and for
 * what libraries name as needed, this library has the names "libibverbs.so" and "libibverbs.so.1", if the search path leads to it.
 */
#include "interpose.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Where the jumps go. */
void *pagewire_real_dlopen __attribute__((visibility("hidden")));
void *pagewire_real_dlmopen __attribute__((visibility("hidden")));

/* What stands for a function of the loader that the C library does not have. */
static void *no_loader(void)
{
	return NULL;
}

static void find_loader(void)
{
	if (!next("dlopen", &pagewire_real_dlopen))
		__atomic_store_n(&pagewire_real_dlopen, (void *)no_loader, __ATOMIC_RELEASE);
	if (!next("dlmopen", &pagewire_real_dlmopen))
		__atomic_store_n(&pagewire_real_dlmopen, (void *)no_loader, __ATOMIC_RELEASE);
}

/* The path of this library, as the loader knows it: it gives what is loaded for it, and opens no file. */
static const char *own_path(void)
{
	static const char *known;
	const char *path = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
	Dl_info about;

	if (!path && dladdr(&known, &about) && about.dli_fname && about.dli_fname[0]) {
		path = about.dli_fname;
		__atomic_store_n(&known, path, __ATOMIC_RELEASE);
	}
	return path;
}

/* Whether the last part of a path is a name of libibverbs: libibverbs.so, libibverbs.so.1, or one of a release (libibverbs.so.1.14.44.0). Packages that
 * carry a copy put a hash behind the first word. */
static int is_name_of_verbs(const char *path)
{
	const char *slash = strrchr(path, '/'), *rest = slash ? slash + 1 : path;

	if (strncmp(rest, "libibverbs", strlen("libibverbs")))
		return 0;
	rest += strlen("libibverbs");
	if (*rest == '-')
		for (rest++; isxdigit((unsigned char)*rest); rest++)
			;
	if (strncmp(rest, ".so", strlen(".so")))
		return 0;
	rest += strlen(".so");
	return !rest[0] || (rest[0] == '.' && rest[1] == '1' && (!rest[2] || rest[2] == '.'));
}

/* Whether a path leads to such a file by symbolic links. */
static int leads_to_verbs(const char *path)
{
	int error = errno, leads;
	char *file = strchr(path, '/') ? realpath(path, NULL) : NULL;

	leads = file && is_name_of_verbs(file);
	free(file);
	errno = error;
	return leads;
}

/* The name that dlopen(3) gets for `name`. */
const char *pagewire_name_to_load(const char *name) __attribute__((visibility("hidden"), used));
const char *pagewire_name_to_load(const char *name)
{
	const char *own;

	find_loader();
	if (!name || !(is_name_of_verbs(name) || leads_to_verbs(name)))
		return name;
	own = own_path();
	return own ? own : name;
}

/* Both functions: with the stack as their callers left it they jump to the C library's. dlmopen of a name of libibverbs opens it in the first
 * namespace, as a process has one engine. */
#if defined(__x86_64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl pagewire_dlopen, pagewire_dlopen_later, pagewire_dlmopen, pagewire_dlmopen_later\n"
	".type pagewire_dlopen, @function\n"
	".type pagewire_dlopen_later, @function\n"
	".type pagewire_dlmopen, @function\n"
	".type pagewire_dlmopen_later, @function\n"
	"pagewire_dlopen:\n"
	"pagewire_dlopen_later:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call pagewire_name_to_load\n"
	"	movq %rax, %rdi\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *pagewire_real_dlopen(%rip)\n"
	"	.cfi_endproc\n"
	".size pagewire_dlopen, . - pagewire_dlopen\n"
	".size pagewire_dlopen_later, . - pagewire_dlopen_later\n"
	".p2align 4\n"
	"pagewire_dlmopen:\n"
	"pagewire_dlmopen_later:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rdx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	movq %rsi, %rdi\n"
	"	call pagewire_name_to_load\n"
	"	popq %rdx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	cmpq %rax, %rsi\n"
	"	je 1f\n"
	"	movq %rax, %rsi\n"
	"	xorl %edi, %edi\n" /* LM_ID_BASE */
	"1:	jmp *pagewire_real_dlmopen(%rip)\n"
	"	.cfi_endproc\n"
	".size pagewire_dlmopen, . - pagewire_dlmopen\n"
	".size pagewire_dlmopen_later, . - pagewire_dlmopen_later\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl pagewire_dlopen, pagewire_dlopen_later, pagewire_dlmopen, pagewire_dlmopen_later\n"
	".type pagewire_dlopen, %function\n"
	".type pagewire_dlopen_later, %function\n"
	".type pagewire_dlmopen, %function\n"
	".type pagewire_dlmopen_later, %function\n"
	"pagewire_dlopen:\n"
	"pagewire_dlopen_later:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	str x1, [sp, #16]\n"
	"	bl pagewire_name_to_load\n"
	"	ldr x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	.cfi_def_cfa_offset 0\n"
	"	adrp x16, pagewire_real_dlopen\n"
	"	ldr x16, [x16, #:lo12:pagewire_real_dlopen]\n"
	"	br x16\n"
	"	.cfi_endproc\n"
	".size pagewire_dlopen, . - pagewire_dlopen\n"
	".size pagewire_dlopen_later, . - pagewire_dlopen_later\n"
	".p2align 4\n"
	"pagewire_dlmopen:\n"
	"pagewire_dlmopen_later:\n"
	"	.cfi_startproc\n"
	"	hint #34\n"
	"	stp x29, x30, [sp, #-48]!\n"
	"	.cfi_def_cfa_offset 48\n"
	"	.cfi_offset 29, -48\n"
	"	.cfi_offset 30, -40\n"
	"	stp x0, x1, [sp, #16]\n"
	"	str x2, [sp, #32]\n"
	"	mov x0, x1\n"
	"	bl pagewire_name_to_load\n"
	"	mov x3, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldr x2, [sp, #32]\n"
	"	ldp x29, x30, [sp], #48\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cmp x3, x1\n"
	"	b.eq 1f\n"
	"	mov x1, x3\n"
	"	mov x0, #0\n" /* LM_ID_BASE */
	"1:	adrp x16, pagewire_real_dlmopen\n"
	"	ldr x16, [x16, #:lo12:pagewire_real_dlmopen]\n"
	"	br x16\n"
	"	.cfi_endproc\n"
	".size pagewire_dlmopen, . - pagewire_dlmopen\n"
	".size pagewire_dlmopen_later, . - pagewire_dlmopen_later\n");
#endif
STANDS_FOR(pagewire_dlopen, dlopen, BASE);
STANDS_FOR(pagewire_dlopen_later, dlopen, LATER("2.34"));
STANDS_FOR(pagewire_dlmopen, dlmopen, SINCE("2.3.4"));
STANDS_FOR(pagewire_dlmopen_later, dlmopen, LATER("2.34"));

/* Gives this library the names by which others look for libibverbs. RTLD_NOLOAD: where the search path leads to another library, nothing is
 * loaded, and the names stay that one's. */
static void take_names(void)
{
	static const char *const names[] = { "libibverbs.so.1", "libibverbs.so" };
	void *(*load)(const char *, int);

	find_loader();
	load = (void *(*)(const char *, int))pagewire_real_dlopen;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *library = load(names[i], RTLD_LAZY | RTLD_NOLOAD);

		if (library)
			dlclose(library);
		else
			dlerror();
	}
}

/* Whether this is a copy of the library in a namespace of its own (dlmopen(3)), and the first namespace has one, too. */
static int is_second_copy(void)
{
	void *(*load)(Lmid_t, const char *, int);
	struct link_map *map = NULL;
	Lmid_t space = LM_ID_BASE;
	Dl_info about;
	void *first;

	if (!dladdr1(&pagewire_real_dlmopen, &about, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    dlinfo(map, RTLD_DI_LMID, &space) != 0 || space == LM_ID_BASE)
		return 0;
	find_loader();
	load = (void *(*)(Lmid_t, const char *, int))pagewire_real_dlmopen;
	first = load(LM_ID_BASE, "libpagewire.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!first) {
		dlerror();
		return 0;
	}
	dlclose(first);
	return 1;
}

/* In src/runtime/process.rs. */
extern _Bool PAGEWIRE_IS_SECOND_COPY;

/* In src/checking/report.rs. */
extern void pagewire_write_findings(void);

__attribute__((destructor)) static void finish(void)
{
	pagewire_write_findings();
}

__attribute__((constructor)) static void begin(void)
{
	if (is_second_copy())
		__atomic_store_n(&PAGEWIRE_IS_SECOND_COPY, 1, __ATOMIC_RELAXED);
	else
		take_names();
}
