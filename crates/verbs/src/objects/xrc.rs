//! Extended reliable connections: XRC domains, their shared receive queues, and queue pairs that are opened more than once.
//!
//! A domain that a file names is shared by the processes of one user that have opened the file ([`sharing`]).

mod elsewhere;
mod frames;
mod links;
mod serving;
mod sharing;

pub use elsewhere::OpenedElsewhere;

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, status};
use crate::calls::Call;
use crate::completion::completion_queue::CompletionQueueObject;
use crate::devices::port_counters;
use crate::objects::context::ContextObject;
use crate::objects::held::epoch;
use crate::objects::object::{Object, not_null};
use crate::objects::protection::ProtectionDomainObject;
use crate::objects::queue_pair::{PublicQueuePair, publish_queue_pair};
use crate::objects::shared_receive::{SharedReceiveObject, ibv_create_srq, publish_shared_receive};
use crate::runtime::engine::Host;
use crate::runtime::explain;
use crate::runtime::leftovers::{Leftover, Leftovers, Membership};
use crate::runtime::process::engine;
use libc::{EAGAIN, EINVAL, EOPNOTSUPP, O_CREAT, O_EXCL, c_int};
use pagewire_fabric::members::{MemberGuard, SharedFile};
use pagewire_failures::Verb;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::{QueuePair, SharedReceiveInit, XrcClosing, XrcDomain, XrcOpener};
use rustix::fs::fstat;
use sharing::{Sharing, has_members};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

// verbs.h, `enum ibv_xrcd_init_attr_mask`.
const IBV_XRCD_INIT_ATTR_FD: u32 = 1;
const IBV_XRCD_INIT_ATTR_OFLAGS: u32 = 2;

/// A context of the engine, which its domains keep alive, and the file by which it names a domain.
type FileKey = (usize, SharedFile);

/// A domain that this process has open.
#[derive(Clone)]
struct OpenDomain {
    domain: Arc<XrcDomain<Host>>,
    /// `None`: no file names it, and no other process has it.
    sharing: Option<Arc<Sharing>>,
}

/// The domains that files name.
static DOMAINS_OF_FILES: PerProcess<HashMap<FileKey, OpenDomain>> = PerProcess::new();
/// The structures that programs have of each queue pair of type XRC_RECV, by its number. Its events name the last of them.
static HANDLES: PerProcess<HashMap<u32, Vec<usize>>> = PerProcess::new();

/// An XRC domain as programs see it.
#[repr(C)]
pub struct XrcDomainObject {
    public: UnsafeCell<ibv_xrcd>,
    domain: Arc<XrcDomain<Host>>,
    sharing: Option<Arc<Sharing>>,
    leftovers: Arc<Leftovers>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_xrcd`.
unsafe impl Object<ibv_xrcd> for XrcDomainObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// `ibv_open_xrcd(3)`, by way of `verbs_context`: a domain of its own (the descriptor is -1), or the one that a file names.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer(Call::on(Verb::OpenXrcd, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid.
        let (opened, init) = unsafe { (ContextObject::of(context)?, &*not_null(init)?) };
        if init.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
            return invalid("comp_mask: a descriptor and flags are to be given");
        }
        let file = match init.fd {
            -1 => None,
            fd if fd < 0 => return Err(Errno(libc::EBADF)),
            fd => {
                // SAFETY: only asked what it is; a number that is no descriptor is refused (EBADF).
                let status = fstat(unsafe { BorrowedFd::borrow_raw(fd) })?;
                Some((
                    std::ptr::from_ref(&***opened.context()).addr(),
                    SharedFile { device: status.st_dev, inode: status.st_ino },
                ))
            }
        };
        let OpenDomain { domain, sharing } =
            domain_for(file, init.oflags, || Ok(opened.context().open_xrcd()?))?;
        let object = XrcDomainObject {
            public: UnsafeCell::new(ibv_xrcd { context }),
            membership: opened.leftovers().add(Leftover::XrcDomain(domain.clone())),
            leftovers: opened.leftovers().clone(),
            domain,
            sharing,
            epoch: epoch(),
        };
        Ok(Box::new(object).publish())
    })
}

/// The domain that a file names, or a new one, as the kernel has it.
fn domain_for(
    file: Option<FileKey>,
    flags: c_int,
    make: impl FnOnce() -> Result<Arc<XrcDomain<Host>>>,
) -> Result<OpenDomain> {
    let mut named = DOMAINS_OF_FILES.lock();
    if let Some(there) = file.and_then(|file| named.get(&file)).filter(|there| there.domain.open()) {
        if flags & O_EXCL != 0 {
            there.domain.close()?;
            return Err(Errno(EINVAL));
        }
        return Ok(there.clone());
    }
    // Nobody else becomes a member until this process is one, or has found that it cannot be.
    let guard = file.map(|(_, file)| MemberGuard::take(file)).transpose()?;
    let is_there = match file {
        Some((_, file)) => has_members(file)?,
        None => false,
    };
    if is_there && flags & O_EXCL != 0 {
        return Err(Errno(EINVAL));
    }
    if !is_there && flags & O_CREAT == 0 {
        return Err(Errno(EAGAIN));
    }
    let domain = make()?;
    let Some(file) = file else { return Ok(OpenDomain { domain, sharing: None }) };
    match Sharing::join(file.1, &domain) {
        Ok(sharing) => {
            let there = OpenDomain { domain, sharing: Some(sharing) };
            named.insert(file, there.clone());
            drop(guard);
            Ok(there)
        }
        Err(error) => {
            domain.close()?;
            Err(error.into())
        }
    }
}

/// Closes a domain once. When it has ended its file names it no more.
///
/// # Errors
/// EBUSY: this process would not have it open any more, and uses it.
pub fn close_domain(domain: &Arc<XrcDomain<Host>>) -> pagewire_nic::Result<()> {
    let mut named = DOMAINS_OF_FILES.lock();
    if domain.close()? {
        named.retain(|_, other| !Arc::ptr_eq(&other.domain, domain));
    }
    Ok(())
}

/// A domain has ended that this process had not open any more.
fn forget_domain(domain: &Arc<XrcDomain<Host>>) {
    DOMAINS_OF_FILES.lock().retain(|_, other| !Arc::ptr_eq(&other.domain, domain));
}

/// `ibv_close_xrcd(3)`, by way of `verbs_context`: EBUSY while the domain would end with shared receive queues or queue pairs in it.
///
/// # Safety
/// `xrcd` is NULL or open, and nobody uses it any more.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status(Call::on(Verb::CloseXrcd, xrcd), || {
        // SAFETY: the caller promises that `xrcd` is NULL or open.
        let object = unsafe { XrcDomainObject::of(xrcd) }?;
        object.membership.end(|| close_domain(&object.domain))?;
        // SAFETY: `of` found `xrcd`, and the caller promises that nobody uses it any more.
        unsafe { XrcDomainObject::free(xrcd) };
        Ok(())
    })
}

/// `ibv_create_srq_ex(3)`, by way of `verbs_context`: a basic one, or one of an XRC domain.
///
/// # Safety
/// `context` is NULL or open; `init` is NULL or valid, and what it names is created.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const KNOWN: u32 = (IBV_SRQ_INIT_ATTR_TM << 1) - 1;
    pointer(Call::on(Verb::CreateSrqEx, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `init` is NULL or valid.
        let given = unsafe {
            ContextObject::of(context)?;
            &mut *not_null(init)?
        };
        let has = |flag| given.comp_mask & flag != 0;
        if given.comp_mask & !KNOWN != 0 || !has(IBV_SRQ_INIT_ATTR_PD) {
            return invalid("comp_mask: a protection domain is to be given, and nothing unknown");
        }
        let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { given.srq_type } else { IBV_SRQT_BASIC };
        match kind {
            IBV_SRQT_BASIC => {
                // SAFETY: `ibv_srq_init_attr_ex` begins with `ibv_srq_init_attr` (a test compares them); the rest is the caller's promise.
                let srq = unsafe { ibv_create_srq(given.pd, init.cast()) };
                if srq.is_null() { Err(std::io::Error::last_os_error().into()) } else { Ok(srq) }
            }
            IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => {
                // SAFETY: the caller promises that what the attributes name is created.
                let (domain, xrc, cq) = unsafe {
                    (
                        ProtectionDomainObject::of(given.pd)?,
                        XrcDomainObject::of(given.xrcd)?,
                        CompletionQueueObject::of(given.cq)?,
                    )
                };
                let asked =
                    SharedReceiveInit { max_wr: given.attr.max_wr, max_sge: given.attr.max_sge, limit: 0 };
                let queue = xrc.domain.create_queue(domain.domain(), &asked, cq.queue())?;
                let actual = queue.query();
                (given.attr.max_wr, given.attr.max_sge) = (actual.max_wr, actual.max_sge);
                Ok(publish_shared_receive(domain, given.pd, given.srq_context, queue))
            }
            IBV_SRQT_XRC => invalid("an XRC domain and a completion queue are to be given"),
            IBV_SRQT_TM => Err(Errno(EOPNOTSUPP)),
            _ => invalid("type of a shared receive queue"),
        }
    })
}

/// `ibv_get_srq_num(3)`, by way of `verbs_context`: of one of an XRC domain.
///
/// # Safety
/// `srq` is NULL or created; `number` is NULL or valid for a write.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    status(Call::on(Verb::GetSrqNum, srq), || {
        // SAFETY: the caller promises that `srq` is NULL or created, and `number` NULL or valid for a write.
        unsafe {
            let own = SharedReceiveObject::of(srq)?.queue().number().ok_or(Errno(EOPNOTSUPP))?;
            not_null(number)?.write(own);
        }
        Ok(())
    })
}

/// Makes a queue pair of type XRC_RECV (`ibv_create_qp_ex(3)`).
///
/// # Safety
/// `xrcd` is NULL or open.
pub unsafe fn create_receiver(given: &ibv_qp_init_attr_ex) -> Result<*mut ibv_qp> {
    // SAFETY: the caller promises that the XRC domain is NULL or open.
    let xrc = unsafe { XrcDomainObject::of(given.xrcd) }?;
    let queue_pair = xrc.domain.create_queue_pair()?;
    Ok(publish_receiver(xrc, given.qp_context, queue_pair))
}

/// `ibv_open_qp(3)`, by way of `verbs_context`: a queue pair of type XRC_RECV once more. It lives as long as somebody has it open.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid, and what it names is open.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attributes: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_XRCD, IBV_QP_OPEN_ATTR_CONTEXT, IBV_QP_OPEN_ATTR_TYPE.
    const NUMBER: u32 = 1;
    const XRCD: u32 = 2;
    const CONTEXT: u32 = 4;
    const TYPE: u32 = 8;
    pointer(Call::on(Verb::OpenQp, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `attributes` is NULL or valid.
        let given = unsafe {
            ContextObject::of(context)?;
            &*not_null(attributes)?
        };
        let needed = NUMBER | XRCD | TYPE;
        if given.comp_mask & needed != needed || given.comp_mask & !(needed | CONTEXT) != 0 {
            return invalid("comp_mask: number, XRC domain and type are to be given");
        }
        if given.qp_type != IBV_QPT_XRC_RECV {
            return invalid("only queue pairs of type XRC_RECV are opened");
        }
        // SAFETY: the caller promises that the XRC domain is open.
        let xrc = unsafe { XrcDomainObject::of(given.xrcd) }?;
        let qp_context = if given.comp_mask & CONTEXT != 0 { given.qp_context } else { std::ptr::null_mut() };
        match (xrc.domain.open_queue_pair(given.qp_num, XrcOpener::ThisProcess), &xrc.sharing) {
            (Ok(queue_pair), _) => Ok(publish_receiver(xrc, qp_context, queue_pair)),
            (Err(_), Some(sharing)) => {
                let opened = OpenedElsewhere::open(&xrc.domain, sharing, given.qp_num)?;
                Ok(publish_opened(xrc, qp_context, opened))
            }
            (Err(error), None) => Err(error.into()),
        }
    })
}

fn publish_receiver(
    xrc: &XrcDomainObject,
    qp_context: *mut libc::c_void,
    queue_pair: Arc<QueuePair<Host>>,
) -> *mut ibv_qp {
    // SAFETY: the structure is written to before it is published alone.
    let context = unsafe { (*xrc.public.get()).context };
    let number = queue_pair.number();
    let mut public = PublicQueuePair::new(context, IBV_QPT_XRC_RECV);
    public.qp_context = qp_context;
    let leftover = Leftover::XrcReceiver(xrc.domain.clone(), queue_pair.clone());
    let membership = xrc.leftovers.add(leftover);
    let kept = queue_pair.clone();
    let qp = publish_queue_pair(public, queue_pair, membership, ReceiverOf::Here(xrc.domain.clone()));
    HANDLES.lock().entry(number).or_default().push(qp as usize);
    // Others may have kept it open meanwhile.
    kept.set_silent(false);
    qp
}

/// As [`publish_receiver`], of a queue pair of another process.
fn publish_opened(
    xrc: &XrcDomainObject,
    qp_context: *mut libc::c_void,
    opened: Arc<OpenedElsewhere>,
) -> *mut ibv_qp {
    // SAFETY: the structure is written to before it is published alone.
    let context = unsafe { (*xrc.public.get()).context };
    let mut public = PublicQueuePair::new(context, IBV_QPT_XRC_RECV);
    public.qp_context = qp_context;
    let stand_in = opened.stand_in().clone();
    let membership = xrc.leftovers.add(Leftover::XrcElsewhere(opened.clone()));
    publish_queue_pair(public, stand_in, membership, ReceiverOf::Elsewhere(opened))
}

/// The domain of a queue pair.
#[derive(Clone)]
pub enum ReceiverOf {
    /// It is of another type.
    None,
    /// It is of this process.
    Here(Arc<XrcDomain<Host>>),
    /// Another process has it.
    Elsewhere(Arc<OpenedElsewhere>),
}

/// Ends one of the structures that programs have of a queue pair of type XRC_RECV. True: it was the last, and the queue pair is destroyed.
///
/// # Errors
/// Those of the end of the queue pair.
pub fn close_receiver(
    domain: &XrcDomain<Host>,
    queue_pair: &QueuePair<Host>,
    qp: usize,
) -> pagewire_nic::Result<bool> {
    let number = queue_pair.number();
    let other = HANDLES.lock().get(&number).and_then(|all| all.iter().rev().find(|one| **one != qp).copied());
    // Later events name another structure; none names this.
    match other {
        Some(other) => queue_pair.set_cookie(other as u64),
        None => queue_pair.set_silent(true),
    }
    queue_pair.withdraw_events();
    let closing = domain.close_queue_pair(number, XrcOpener::ThisProcess);
    if closing.is_err() {
        queue_pair.set_silent(false);
    }
    let is_destroyed = closing? != XrcClosing::OpenStill;
    let mut handles = HANDLES.lock();
    if let Some(all) = handles.get_mut(&number) {
        all.retain(|one| *one != qp && !is_destroyed);
        if all.is_empty() {
            handles.remove(&number);
        }
    }
    Ok(is_destroyed)
}

/// As [`close_receiver`], of a structure that the program still has when it closes the device.
///
/// # Errors
/// Those of the end of the queue pair.
pub fn abandon_receiver(domain: &XrcDomain<Host>, queue_pair: &QueuePair<Host>) -> pagewire_nic::Result<()> {
    queue_pair.async_events().abandon();
    queue_pair.set_silent(true);
    HANDLES.lock().remove(&queue_pair.number());
    domain.close_queue_pair(queue_pair.number(), XrcOpener::ThisProcess).map(drop)
}

/// Another process has closed a queue pair, or has ended. True: with it the domain has ended.
///
/// # Errors
/// Those of the end of the queue pair.
fn close_for_another(domain: &XrcDomain<Host>, queue_pair: &Arc<QueuePair<Host>>) -> Result<bool> {
    let (engine, report) = (engine()?, queue_pair.report());
    let closing = domain.close_queue_pair(queue_pair.number(), XrcOpener::AnotherProcess)?;
    if closing != XrcClosing::OpenStill {
        port_counters::remember(&report);
        explain::remember(&engine, report);
    }
    Ok(closing == XrcClosing::DomainEnded)
}
