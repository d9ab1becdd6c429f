//! Advice about registered memory (`ibv_advise_mr(3)`).

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, status};
use crate::calls::Call;
use crate::objects::object::Object;
use crate::objects::protection::ProtectionDomainObject;
use libc::{EOPNOTSUPP, c_int};
use pagewire_failures::Verb;
use pagewire_nic::{Advice, ScatterGather};

/// `ibv_advise_mr(3)`, by way of `verbs_context`.
///
/// # Safety
/// `pd` is NULL or allocated; `list` has `count` elements.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    status(Call::on(Verb::AdviseMr, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated, and that `list` has `count` elements.
        let (domain, pieces) = unsafe { (ProtectionDomainObject::of(pd)?, pieces(list, count)?) };
        if flags & !IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0 {
            return invalid("flags of an advice");
        }
        let advice = Advice::from_repr(advice).ok_or(Errno(EOPNOTSUPP))?;
        Ok(advice.give(domain.domain(), flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0, pieces)?)
    })
}

/// # Safety
/// `list` has `count` elements.
unsafe fn pieces<'a>(list: *const ibv_sge, count: u32) -> Result<&'a [ScatterGather]> {
    if list.is_null() || count == 0 {
        return invalid("no scatter-gather list");
    }
    // SAFETY: the caller promises that `list` has `count` elements; `ScatterGather` has the layout of `ibv_sge` (a
    // test compares them).
    Ok(unsafe { std::slice::from_raw_parts(list.cast(), count as usize) })
}
