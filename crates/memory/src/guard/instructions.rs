//! The machine instructions that touch application memory, each function in one range of addresses by which the handler
//! knows them. One that meets a fault gives 1 at once; what it had done until then stays done.

/// The instructions of one architecture, between labels that the rest of the library finds, and nobody else.
macro_rules! guarded {
    ($($instruction:literal),* $(,)?) => {
        core::arch::global_asm!(
            ".balign 64",
            ".hidden pagewire_guard_begin",
            ".hidden pagewire_guard_end",
            ".hidden pagewire_guard_mend",
            ".hidden pagewire_guard_ended",
            ".hidden pagewire_guard_add",
            ".hidden pagewire_guard_swap",
            ".hidden pagewire_guard_touch",
            ".hidden pagewire_guard_touch_write",
            ".hidden pagewire_guard_copy",
            ".globl pagewire_guard_begin, pagewire_guard_end, pagewire_guard_mend, pagewire_guard_ended",
            ".globl pagewire_guard_add, pagewire_guard_swap, pagewire_guard_touch, pagewire_guard_touch_write",
            ".globl pagewire_guard_copy",
            "pagewire_guard_begin:",
            $($instruction),*
        );
    };
}

#[cfg(target_arch = "x86_64")]
guarded!(
    // (address, add, original) -> 0
    "pagewire_guard_add:",
    "mov rax, rsi",
    "lock xadd qword ptr [rdi], rax",
    "mov qword ptr [rdx], rax",
    "xor eax, eax",
    "ret",
    // (address, compare, swap, original) -> 0
    "pagewire_guard_swap:",
    "mov rax, rsi",
    "lock cmpxchg qword ptr [rdi], rdx",
    "mov qword ptr [rcx], rax",
    "xor eax, eax",
    "ret",
    // (address) -> 0
    "pagewire_guard_touch:",
    "mov al, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    // (address) -> 0; changes nothing, whatever others write meanwhile
    "pagewire_guard_touch_write:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    // (to, from, length) -> 0; short ones word by word, so that 8, 4 or 2 bytes appear at once
    "pagewire_guard_copy:",
    "cmp rdx, 128",
    "ja 5f",
    "2: cmp rdx, 8",
    "jb 3f",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jmp 2b",
    "3: test edx, edx",
    "jz 4f",
    "test dl, 4",
    "jz 6f",
    "mov eax, dword ptr [rsi]",
    "mov dword ptr [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "6: test dl, 2",
    "jz 7f",
    "mov ax, word ptr [rsi]",
    "mov word ptr [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "7: test dl, 1",
    "jz 4f",
    "mov al, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "4: xor eax, eax",
    "ret",
    "5: mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // (to, from, length) -> 0; by registers of 256 bits, the rest as above. No byte is written twice: a program may have seen it.
    ".hidden pagewire_guard_copy_wide",
    ".globl pagewire_guard_copy_wide",
    "pagewire_guard_copy_wide:",
    "8: cmp rdx, 128",
    "jb 9f",
    "vmovdqu ymm0, ymmword ptr [rsi]",
    "vmovdqu ymm1, ymmword ptr [rsi + 32]",
    "vmovdqu ymm2, ymmword ptr [rsi + 64]",
    "vmovdqu ymm3, ymmword ptr [rsi + 96]",
    "vmovdqu ymmword ptr [rdi], ymm0",
    "vmovdqu ymmword ptr [rdi + 32], ymm1",
    "vmovdqu ymmword ptr [rdi + 64], ymm2",
    "vmovdqu ymmword ptr [rdi + 96], ymm3",
    "add rsi, 128",
    "add rdi, 128",
    "sub rdx, 128",
    "jmp 8b",
    "9: cmp rdx, 32",
    "jb 20f",
    "vmovdqu ymm0, ymmword ptr [rsi]",
    "vmovdqu ymmword ptr [rdi], ymm0",
    "add rsi, 32",
    "add rdi, 32",
    "sub rdx, 32",
    "jmp 9b",
    "20: vzeroupper",
    "jmp 2b",
    "pagewire_guard_end:",
    "pagewire_guard_mend:",
    "mov eax, 1",
    "ret",
    // of a touch that was ended
    "pagewire_guard_ended:",
    "mov eax, 2",
    "ret",
);

#[cfg(target_arch = "aarch64")]
guarded!(
    "pagewire_guard_add:",
    "1: ldaxr x3, [x0]",
    "add x4, x3, x1",
    "stlxr w5, x4, [x0]",
    "cbnz w5, 1b",
    "dmb ish",
    "str x3, [x2]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_swap:",
    "2: ldaxr x4, [x0]",
    "cmp x4, x1",
    "b.ne 3f",
    "stlxr w5, x2, [x0]",
    "cbnz w5, 2b",
    "3: clrex",
    "dmb ish",
    "str x4, [x3]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_touch:",
    "ldrb w1, [x0]",
    "mov w0, #0",
    "ret",
    "pagewire_guard_touch_write:",
    "4: ldxrb w1, [x0]",
    "stxrb w2, w1, [x0]",
    "cbnz w2, 4b",
    "mov w0, #0",
    "ret",
    // The barrier makes what was written before visible before.
    "pagewire_guard_copy:",
    "dmb ish",
    "5: subs x2, x2, #8",
    "b.lo 6f",
    "ldr x3, [x1], #8",
    "str x3, [x0], #8",
    "b 5b",
    "6: add x2, x2, #8",
    "tbz w2, #2, 7f",
    "ldr w3, [x1], #4",
    "str w3, [x0], #4",
    "7: tbz w2, #1, 8f",
    "ldrh w3, [x1], #2",
    "strh w3, [x0], #2",
    "8: tbz w2, #0, 9f",
    "ldrb w3, [x1]",
    "strb w3, [x0]",
    "9: mov w0, #0",
    "ret",
    "pagewire_guard_end:",
    "pagewire_guard_mend:",
    "mov w0, #1",
    "ret",
    // of a touch that was ended
    "pagewire_guard_ended:",
    "mov w0, #2",
    "ret",
);

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("guarded accesses are written for x86_64 and aarch64");

unsafe extern "C" {
    pub static pagewire_guard_begin: u8;
    pub static pagewire_guard_end: u8;
    pub static pagewire_guard_mend: u8;
    pub static pagewire_guard_ended: u8;
    pub fn pagewire_guard_add(address: u64, add: u64, original: *mut u64) -> i32;
    pub fn pagewire_guard_swap(address: u64, compare: u64, swap: u64, original: *mut u64) -> i32;
    pub fn pagewire_guard_touch(address: u64) -> i32;
    pub fn pagewire_guard_touch_write(address: u64) -> i32;
    fn pagewire_guard_copy(to: u64, from: u64, length: usize) -> i32;
    #[cfg(target_arch = "x86_64")]
    fn pagewire_guard_copy_wide(to: u64, from: u64, length: usize) -> i32;
}

/// Where the instructions are that touch a page and do nothing else.
pub fn touches() -> std::ops::Range<u64> {
    // The macro lays them out so, in both architectures.
    pagewire_guard_touch as *const () as u64..pagewire_guard_copy as *const () as u64
}

/// Bytes from which on `rep movsb`, and up to which registers of 256 bits are faster than the other. 1,024 bytes to where no cache line
/// begins take 8 instead of 15 ns, 256 bytes 3 instead of 10 to 15, 4,096 about the same (Zen 5).
#[cfg(target_arch = "x86_64")]
const WIDE: std::ops::RangeInclusive<usize> = 129..=4096;

/// Copies bytes; 8, 4 or 2 appear at once. 0: all; else it met a fault.
///
/// # Safety
/// A fault is mended by the handler, and what is written is either application memory or the caller's to write.
#[inline]
pub unsafe fn copy(to: u64, from: u64, length: usize) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if WIDE.contains(&length) && std::is_x86_feature_detected!("avx") {
        // SAFETY: the caller promises that the handler mends a fault, and that it may write what is written; the
        // processor has the registers.
        return unsafe { pagewire_guard_copy_wide(to, from, length) };
    }
    // SAFETY: the caller promises that the handler mends a fault, and that it may write what is written.
    unsafe { pagewire_guard_copy(to, from, length) }
}
