//! Translation of the kernel's structures, as librdmacm reads them from its device, into those of verbs.

use crate::abi::*;

fn address_vector(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.grh.dgid },
            flow_label: from.grh.flow_label,
            sgid_index: from.grh.sgid_index,
            hop_limit: from.grh.hop_limit,
            traffic_class: from.grh.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Address vector of the kernel to that of verbs.
///
/// # Safety
/// Both pointers are valid for their structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, from: *const ib_uverbs_ah_attr) {
    // SAFETY: the caller promises that both pointers are valid for their structures.
    unsafe { to.write(address_vector(&*from)) };
}

/// Queue pair attributes of the kernel to those of verbs.
///
/// # Safety
/// Both pointers are valid for their structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, from: *const ib_uverbs_qp_attr) {
    // SAFETY: the caller promises that both pointers are valid for their structures.
    let (to, from) = unsafe { (&mut *to, &*from) };
    to.qp_state = from.qp_state;
    to.cur_qp_state = from.cur_qp_state;
    to.path_mtu = from.path_mtu;
    to.path_mig_state = from.path_mig_state;
    to.qkey = from.qkey;
    to.rq_psn = from.rq_psn;
    to.sq_psn = from.sq_psn;
    to.dest_qp_num = from.dest_qp_num;
    to.qp_access_flags = from.qp_access_flags;
    to.cap = ibv_qp_cap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    };
    to.ah_attr = address_vector(&from.ah_attr);
    to.alt_ah_attr = address_vector(&from.alt_ah_attr);
    to.pkey_index = from.pkey_index;
    to.alt_pkey_index = from.alt_pkey_index;
    to.en_sqd_async_notify = from.en_sqd_async_notify;
    to.sq_draining = from.sq_draining;
    to.max_rd_atomic = from.max_rd_atomic;
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    to.min_rnr_timer = from.min_rnr_timer;
    to.port_num = from.port_num;
    to.timeout = from.timeout;
    to.retry_cnt = from.retry_cnt;
    to.rnr_retry = from.rnr_retry;
    to.alt_port_num = from.alt_port_num;
    to.alt_timeout = from.alt_timeout;
}

/// Path record of the kernel to that of verbs.
///
/// # Safety
/// Both pointers are valid for their structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    // SAFETY: the caller promises that `from` is valid for its structure.
    let from = unsafe { &*from };
    let record = ibv_sa_path_rec {
        dgid: ibv_gid { raw: from.dgid },
        sgid: ibv_gid { raw: from.sgid },
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic as i32,
        flow_label: from.flow_label,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        reversible: from.reversible as i32,
        numb_path: from.numb_path,
        pkey: from.pkey,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        mtu: from.mtu as u8,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
    // SAFETY: the caller promises that `to` is valid for its structure.
    unsafe { to.write(record) };
}

/// Path record of verbs to that of the kernel.
///
/// # Safety
/// Both pointers are valid for their structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(to: *mut ib_user_path_rec, from: *const ibv_sa_path_rec) {
    // SAFETY: the caller promises that both pointers are valid for their structures; each view of a GID union is 16 plain bytes.
    let (from, dgid, sgid) = unsafe { (&*from, (*from).dgid.raw, (*from).sgid.raw) };
    let record = ib_user_path_rec {
        dgid,
        sgid,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic as u32,
        flow_label: from.flow_label,
        reversible: from.reversible as u32,
        mtu: u32::from(from.mtu),
        pkey: from.pkey,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        numb_path: from.numb_path,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
    // SAFETY: the caller promises that `to` is valid for its structure.
    unsafe { to.write(record) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_records_survive_a_round_trip() {
        let mut record = ib_user_path_rec::zeroed();
        record.dgid = [7; 16];
        record.dlid = 0x1234;
        record.reversible = 1;
        record.mtu = 5;
        record.pkey = 0xFFFF;
        record.rate = 3;
        record.preference = 9;
        let (mut verbs, mut back) = (ibv_sa_path_rec::zeroed(), ib_user_path_rec::zeroed());
        // SAFETY: all are local structures.
        unsafe {
            ibv_copy_path_rec_from_kern(&mut verbs, &record);
            ibv_copy_path_rec_to_kern(&mut back, &verbs);
        }
        assert_eq!((back.dgid, back.dlid, back.reversible), (record.dgid, record.dlid, record.reversible));
        assert_eq!((back.mtu, back.pkey, back.rate, back.preference), (5, 0xFFFF, 3, 9));
    }

    #[test]
    fn queue_pair_attributes_keep_their_meaning() {
        let mut kernel = ib_uverbs_qp_attr::zeroed();
        kernel.dest_qp_num = 77;
        kernel.ah_attr.grh.dgid = [3; 16];
        kernel.ah_attr.grh.hop_limit = 64;
        kernel.ah_attr.port_num = 1;
        kernel.rnr_retry = 7;
        let mut attributes = ibv_qp_attr::zeroed();
        // SAFETY: both are local structures.
        unsafe { ibv_copy_qp_attr_from_kern(&mut attributes, &kernel) };
        assert_eq!((attributes.dest_qp_num, attributes.rnr_retry), (77, 7));
        assert_eq!((attributes.ah_attr.port_num, attributes.ah_attr.grh.hop_limit), (1, 64));
        // SAFETY: sixteen plain bytes.
        assert_eq!(unsafe { attributes.ah_attr.grh.dgid.raw }, [3; 16]);
    }
}
