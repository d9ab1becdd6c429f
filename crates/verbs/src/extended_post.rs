//! The extended interface for posting (ibv_wr_post(3)): between `ibv_wr_start` and `ibv_wr_complete` a program builds send requests, which are then
//! posted as a list of `ibv_post_send`: all of them, or none.
//!
//! One thread builds at a time; others wait in `ibv_wr_start`.

use crate::abi::*;
use crate::boundary::{Errno, Result, guarded, invalid, pointer, set_errno};
use crate::calls::Call;
use crate::objects::context::ContextObject;
use crate::objects::object::{Object, not_null};
use crate::objects::queue_pair::{QueuePairObject, ibv_create_qp};
use crate::objects::xrc::create_receiver;
use crate::request_builder::{BuildSession, BuiltRequest, RequestBuilder};
use crate::{post, unsupported};
use libc::{EINVAL, ENOMEM, EOPNOTSUPP, c_int, c_void};
use pagewire_failures::Verb;
use smallvec::SmallVec;
use std::ptr::null_mut;

/// `ibv_create_qp_ex(3)`, by way of `verbs_context`: what the plain verb can do, and operations of the extended interface for posting. The rest
/// is refused at creation.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid, and what it names is created.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    pointer(Call::on(Verb::CreateQpEx, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid, and what it names is created.
        let given = unsafe {
            ContextObject::of(context)?;
            &*not_null(init)?
        };
        unsupported::queue_pair_options(given)?;
        if given.qp_type == IBV_QPT_XRC_RECV {
            if given.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
                return invalid("no XRC domain");
            }
            // SAFETY: the caller promises that what `init` names is created.
            return unsafe { create_receiver(given) };
        }
        if given.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
            return invalid("no protection domain");
        }
        // SAFETY: `ibv_qp_init_attr_ex` begins with the fields of `ibv_qp_init_attr` (a test compares them); the rest is
        // the caller's promise. `ibv_create_qp` sets errno itself.
        let qp = unsafe { ibv_create_qp(given.pd, init.cast()) };
        if qp.is_null() {
            return Err(std::io::Error::last_os_error().into());
        }
        if given.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 && given.send_ops_flags != 0 {
            // SAFETY: it was just created, and nobody else has it yet: the structure that programs see may be written to.
            unsafe { set_functions(&mut *QueuePairObject::of(qp)?.add_builder()) };
        }
        Ok(qp)
    })
}

/// `ibv_qp_to_qp_ex(3)`: NULL for a queue pair that was not created with operations of the extended interface for posting.
///
/// # Safety
/// `qp` is NULL or created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller promises that `qp` is NULL or created.
    let object = guarded(|| unsafe { QueuePairObject::of(qp) });
    match object.is_ok_and(|object| object.builder().is_some()) {
        true => qp.cast(),
        false => std::ptr::null_mut(),
    }
}

/// Sets the functions of the interface in the structure that programs see.
pub fn set_functions(public: &mut FlushingQueuePair) {
    public.wr_flush = Some(flush);
    let qp = &mut public.qp;
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_atomic_write = Some(atomic_write);
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_set_xrc_srqn = Some(set_xrc_srqn);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    // Programs call what they have not asked for without a look: it is refused when they complete.
    qp.wr_send_tso = Some(send_tso);
}

/// The object of a queue pair with a builder.
///
/// # Safety
/// `qp` is created, with operations of the extended interface.
unsafe fn object_of<'a>(qp: *mut ibv_qp_ex) -> Result<(&'a QueuePairObject, &'a RequestBuilder)> {
    // SAFETY: the caller promises a queue pair that is created; `ibv_qp_ex` begins with `ibv_qp`.
    let object = unsafe { QueuePairObject::of(qp.cast::<ibv_qp>()) }?;
    Ok((object, object.builder().ok_or(Errno(EINVAL))?))
}

/// Does something to the session of this thread; what goes wrong is told when the program completes.
///
/// # Safety
/// As for [`object_of`].
unsafe fn build(qp: *mut ibv_qp_ex, step: impl FnOnce(&mut BuildSession) -> Result<()>) {
    let _ = guarded(|| {
        // SAFETY: the caller promises a queue pair that was created with operations of the extended interface.
        let (_, builder) = unsafe { object_of(qp) }?;
        let mut session = builder.session.lock();
        if let Err(error) = step(&mut session) {
            session.error.get_or_insert(error);
        }
        Ok(())
    });
}

/// Begins a request with what the structure says now of its number and flags.
///
/// # Safety
/// As for [`object_of`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode, set: impl FnOnce(&mut ibv_send_wr)) {
    let step = |session: &mut BuildSession| {
        let mut wr = ibv_send_wr::zeroed();
        // SAFETY: the queue pair is created, and its thread alone writes these members.
        (wr.wr_id, wr.send_flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags & !IBV_SEND_INLINE) };
        wr.opcode = opcode;
        set(&mut wr);
        session.requests.push(BuiltRequest { wr, pieces: SmallVec::new(), inline: None });
        Ok(())
    };
    // SAFETY: the caller promises a queue pair that was created with operations of the extended interface.
    unsafe { build(qp, step) }
}

/// What a remote access is to.
fn set_remote(wr: &mut ibv_send_wr, rkey: u32, remote_addr: u64) {
    wr.wr.rdma.remote_addr = remote_addr;
    wr.wr.rdma.rkey = rkey;
}

fn set_atomic(wr: &mut ibv_send_wr, rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) {
    wr.wr.atomic.remote_addr = remote_addr;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
    wr.wr.atomic.rkey = rkey;
}

/// Waits until no other thread builds, and begins.
unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    let _ = guarded(|| {
        // SAFETY: ibv_wr_post(3) asks for a queue pair that was created with operations.
        let (_, builder) = unsafe { object_of(qp) }?;
        let mut session = builder.session.lock();
        while session.is_open {
            builder.ended.wait(&mut session);
        }
        session.is_open = true;
        session.clear();
        Ok(())
    });
}

/// Posts all that was built. An error: nothing was posted.
unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let completed = guarded(|| {
        // SAFETY: as for `start`.
        let (object, builder) = unsafe { object_of(qp) }?;
        let mut session = builder.session.lock();
        if !session.is_open {
            session.clear();
            return invalid("ibv_wr_complete without ibv_wr_start");
        }
        // SAFETY: the queue pair is created, and its thread alone works with the session.
        let posted = unsafe { post_all(qp, object, &mut session) };
        session.clear();
        session.is_open = false;
        drop(session);
        builder.ended.notify_one();
        posted
    });
    match completed {
        Ok(()) => 0,
        Err(Errno(error)) => {
            set_errno(error);
            error
        }
    }
}

/// # Safety
/// As for [`object_of`]; what the requests name is valid.
unsafe fn post_all(qp: *mut ibv_qp_ex, object: &QueuePairObject, session: &mut BuildSession) -> Result<()> {
    if let Some(error) = session.error {
        return Err(error);
    }
    let first = session.link();
    if first.is_null() {
        return Ok(());
    }
    for request in &session.requests {
        // SAFETY: the request and its list belong to the session; the caller promises what they name.
        unsafe { post::check_one(object, &request.wr) }?;
    }
    if !object.queue_pair().has_send_room(session.requests.len()) {
        log::debug!("refused: the send queue has no room for {} requests", session.requests.len());
        return Err(Errno(ENOMEM));
    }
    let mut refused = null_mut();
    // SAFETY: the queue pair is created, and so is its context, whose table has this function.
    let answer = unsafe {
        let context = &*(*qp).qp_base.context;
        context.ops.post_send.map_or(EINVAL, |post| post(qp.cast(), first, &mut refused))
    };
    if answer == 0 { Ok(()) } else { Err(Errno(answer)) }
}

/// Forgets all that was built.
unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    let _ = guarded(|| {
        // SAFETY: as for `start`.
        let (_, builder) = unsafe { object_of(qp) }?;
        let mut session = builder.session.lock();
        session.clear();
        session.is_open = false;
        drop(session);
        builder.ended.notify_one();
        Ok(())
    });
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_SEND, |_| ()) }
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, immediate: __be32) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, |wr| wr.__bindgen_anon_1.imm_data = immediate) }
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE, |wr| set_remote(wr, rkey, remote_addr)) }
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, immediate: __be32) {
    let set = |wr: &mut ibv_send_wr| {
        set_remote(wr, rkey, remote_addr);
        wr.__bindgen_anon_1.imm_data = immediate;
    };
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, set) }
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_RDMA_READ, |wr| set_remote(wr, rkey, remote_addr)) }
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    let set = |wr: &mut ibv_send_wr| set_atomic(wr, rkey, remote_addr, compare, swap);
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, set) }
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    let set = |wr: &mut ibv_send_wr| set_atomic(wr, rkey, remote_addr, add, 0);
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, set) }
}

unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_ATOMIC_WRITE, |wr| set_remote(wr, rkey, remote_addr)) };
    let set = |session: &mut BuildSession| {
        session.last()?;
        if atomic_wr.is_null() {
            return invalid("no bytes of an atomic WRITE");
        }
        // SAFETY: ibv_wr_post(3) asks for 8 bytes at the address, which is not NULL.
        let bytes = unsafe { atomic_wr.cast::<[u8; 8]>().read_unaligned() };
        let begun = session.bytes.len();
        session.bytes.extend_from_slice(&bytes);
        session.last()?.inline = Some(begun..begun + bytes.len());
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}

unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    type_: u8,
    level: u8,
) {
    let set = |wr: &mut ibv_send_wr| post::set_flush(wr, (remote_addr, rkey), len, (type_, level));
    // SAFETY: as for `start`.
    unsafe { begin(qp, post::BUILT_FLUSH, set) }
}

unsafe extern "C" fn bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: ibv_wr_post(3) asks for what the window is to be bound to.
    let Some(bind_info) = (unsafe { info.as_ref() }).copied() else {
        // SAFETY: as for `start`.
        return unsafe { build(qp, |_| invalid("nothing to bind to")) };
    };
    let bound = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info };
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_BIND_MW, |wr| wr.__bindgen_anon_2.bind_mw = bound) }
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `start`.
    unsafe { begin(qp, IBV_WR_LOCAL_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    let set = |session: &mut BuildSession| {
        let address = &mut session.last()?.wr.wr;
        address.ud.ah = ah;
        address.ud.remote_qpn = remote_qpn;
        address.ud.remote_qkey = remote_qkey;
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let set = |session: &mut BuildSession| {
        let request = session.last()?;
        request.inline = None;
        request.pieces.clear();
        request.pieces.push(ibv_sge { addr, length, lkey });
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let set = |session: &mut BuildSession| {
        let request = session.last()?;
        // SAFETY: ibv_wr_post(3) asks for a list of so many elements; one that is too long is not looked at.
        let pieces = unsafe { pieces_of(qp, count, list) }?;
        request.inline = None;
        request.pieces = pieces;
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}

/// The elements of a list that a queue pair takes.
///
/// # Safety
/// The queue pair is created; `list` has `count` elements if these are no more than it takes.
unsafe fn pieces_of(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_sge,
) -> Result<SmallVec<[ibv_sge; 2]>> {
    // SAFETY: the caller promises a queue pair that was created with operations of the extended interface.
    let (object, _) = unsafe { object_of(qp) }?;
    if count > object.queue_pair().capabilities().max_send_sge as usize || list.is_null() && count > 0 {
        return invalid("number of scatter-gather elements");
    }
    // SAFETY: the caller promises so many elements, wherever they lie.
    Ok((0..count).map(|index| unsafe { list.add(index).read_unaligned() }).collect())
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: ibv_wr_post(3) asks for so many bytes at the address.
    unsafe { set_inline_data_list(qp, 1, &raw const buffer) }
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let set = |session: &mut BuildSession| {
        // SAFETY: as for `start`.
        let (object, _) = unsafe { object_of(qp) }?;
        let most = object.queue_pair().capabilities().max_inline_data as usize;
        session.last()?;
        if list.is_null() && count > 0 {
            return invalid("no list of inline data");
        }
        let begun = session.bytes.len();
        for index in 0..count {
            // SAFETY: ibv_wr_post(3) asks for a list of so many buffers, each of which has its bytes.
            let buffer = unsafe { list.add(index).read_unaligned() };
            if buffer.length > most - (session.bytes.len() - begun) {
                return invalid("more inline data than the queue pair takes");
            }
            if buffer.addr.is_null() && buffer.length > 0 {
                return invalid("no inline data");
            }
            if buffer.length > 0 {
                // SAFETY: ibv_wr_post(3) asks for a buffer of so many bytes; its address is not NULL.
                let bytes = unsafe { std::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length) };
                session.bytes.extend_from_slice(bytes);
            }
        }
        let end = session.bytes.len();
        session.last()?.inline = Some(begun..end);
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}

/// Refuses an operation that no queue pair is created with.
///
/// # Safety
/// As for [`object_of`].
unsafe fn refuse(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller promises a queue pair that was created with operations of the extended interface.
    unsafe { build(qp, |_| Err(Errno(EOPNOTSUPP))) }
}

unsafe extern "C" fn send_tso(qp: *mut ibv_qp_ex, _: *mut c_void, _: u16, _: u16) {
    // SAFETY: as for `start`.
    unsafe { refuse(qp) }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    let set = |session: &mut BuildSession| {
        session.last()?.wr.qp_type.xrc.remote_srqn = remote_srqn;
        Ok(())
    };
    // SAFETY: as for `start`.
    unsafe { build(qp, set) }
}
