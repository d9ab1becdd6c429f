//! The tables of functions that the inline verbs of the header call.

use crate::abi::*;
use crate::calls::fast;
use crate::extended_post;
use crate::{
    calls, completion::completion_queue, completion::extended_poll, devices::query, objects::advise,
    objects::device_memory, objects::memory_window, objects::parent_domain, objects::protection,
    objects::shared_receive, objects::xrc, post,
};

/// The operations of `ibv_context`, called without a look. Those of a process whose calls somebody observes tell the observers.
pub fn context_operations() -> ibv_context_ops {
    let is_observed = calls::has_observers();
    ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::ibv_query_port),
        alloc_mw: Some(memory_window::alloc_mw),
        bind_mw: Some(memory_window::bind_mw),
        dealloc_mw: Some(memory_window::dealloc_mw),
        poll_cq: Some(if is_observed { fast::poll_cq } else { completion_queue::poll_cq }),
        req_notify_cq: Some(if is_observed { fast::req_notify_cq } else { completion_queue::req_notify_cq }),
        post_srq_recv: Some(if is_observed { fast::post_srq_recv } else { shared_receive::post_srq_recv }),
        post_send: Some(if is_observed { fast::post_send } else { post::post_send }),
        post_recv: Some(if is_observed { fast::post_recv } else { post::post_recv }),
        // Compatibility entries of a library generation that no program of today was built against.
        ..verbs_context::zeroed().context.ops
    }
}

/// The operations of `verbs_context`; one that is absent makes its verb answer EOPNOTSUPP.
pub fn verbs_operations() -> verbs_context {
    verbs_context {
        query_port: Some(query::query_port),
        query_device_ex: Some(query::query_device_ex),
        create_cq_ex: Some(extended_poll::create_cq_ex),
        create_qp_ex: Some(extended_post::create_qp_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        create_srq_ex: Some(xrc::create_srq_ex),
        get_srq_num: Some(xrc::get_srq_num),
        open_qp: Some(xrc::open_qp),
        advise_mr: Some(advise::advise_mr),
        alloc_null_mr: Some(protection::alloc_null_mr),
        alloc_dm: Some(device_memory::alloc_dm),
        free_dm: Some(device_memory::free_dm),
        reg_dm_mr: Some(device_memory::reg_dm_mr),
        alloc_td: Some(parent_domain::alloc_td),
        dealloc_td: Some(parent_domain::dealloc_td),
        alloc_parent_domain: Some(parent_domain::alloc_parent_domain),
        modify_cq: Some(completion_queue::modify_cq),
        query_rt_values: Some(query::query_rt_values),
        ..verbs_context::zeroed()
    }
}
