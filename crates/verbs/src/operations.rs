//! The tables of functions that the inline verbs of the header call.

use crate::abi::*;
use crate::{
    completion::completion_queue, completion::extended_poll, devices::query, objects::advise,
    objects::parent_domain, objects::protection, objects::queue_pair, objects::shared_receive, post,
    unsupported,
};

/// The operations of `ibv_context`, called without a look.
pub fn context_operations() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::ibv_query_port),
        alloc_mw: Some(unsupported::alloc_mw),
        bind_mw: Some(unsupported::bind_mw),
        dealloc_mw: Some(unsupported::dealloc_mw),
        poll_cq: Some(completion_queue::poll_cq),
        req_notify_cq: Some(completion_queue::req_notify_cq),
        post_srq_recv: Some(shared_receive::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
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
        create_qp_ex: Some(queue_pair::create_qp_ex),
        close_xrcd: Some(unsupported::close_xrcd),
        advise_mr: Some(advise::advise_mr),
        alloc_null_mr: Some(protection::alloc_null_mr),
        alloc_td: Some(parent_domain::alloc_td),
        dealloc_td: Some(parent_domain::dealloc_td),
        alloc_parent_domain: Some(parent_domain::alloc_parent_domain),
        modify_cq: Some(completion_queue::modify_cq),
        query_rt_values: Some(query::query_rt_values),
        ..verbs_context::zeroed()
    }
}
