"""
Completion counters: traffic of RC queue pairs, counted at both ends. rdma-core has no test of them.
"""
import time

from pyverbs.comp_cntr import CompCntr, CompCntrInitAttr
from pyverbs.libibverbs_enums import ibv_wr_opcode
from pyverbs.qp import QPAttachCompCntrAttr
from tests.base import RCResources, RDMATestCase
import tests.utils as u

SEND, RECV, READ, REMOTE_READ, WRITE, REMOTE_WRITE = (1 << bit for bit in range(6))
ALL = 63
REMOTE_ACCESS = 15
REQUESTS, BYTES = 0, 1


class CountedRC(RCResources):
    """Counters of requests and of bytes for two operations, attached before the queue pair leaves INIT."""
    def __init__(self, dev_name, ib_port, gid_index, operation, cntr_type):
        self.operation, self.cntr_type = operation, cntr_type
        super().__init__(dev_name, ib_port, gid_index)

    def create_mr(self):
        self.mr = u.create_custom_mr(self, REMOTE_ACCESS)

    def create_qp_attr(self):
        attr = super().create_qp_attr()
        attr.qp_access_flags = REMOTE_ACCESS
        return attr

    def create_qps(self):
        super().create_qps()
        self.cntr = CompCntr(self.ctx, CompCntrInitAttr(cntr_type=self.cntr_type))
        self.qp.attach_comp_cntr(self.cntr, QPAttachCompCntrAttr(op_mask=self.operation))


class CompCntrTest(RDMATestCase):
    def setUp(self):
        super().setUp()
        self.iters = 50

    def counted(self, client_op, server_op, cntr_type, run):
        self.client = CountedRC(**self.dev_info, operation=client_op, cntr_type=cntr_type)
        self.server = CountedRC(**self.dev_info, operation=server_op, cntr_type=cntr_type)
        self.client.pre_run(self.server.psns, self.server.qps_num)
        self.server.pre_run(self.client.psns, self.client.qps_num)
        self.client.rkey, self.client.raddr = self.server.mr.rkey, self.server.mr.buf
        self.server.rkey, self.server.raddr = self.client.mr.rkey, self.client.mr.buf
        run(self.client, self.server)
        return self.client.cntr, self.server.cntr

    def expect(self, cntr, count):
        until = time.time() + 20
        while cntr.read() < count and time.time() < until:
            pass
        self.assertEqual((cntr.read(), cntr.read_err()), (count, 0))

    def traffic(self, client, server):
        u.traffic(client, server, self.iters, self.gid_index, self.ib_port)

    def test_caps(self):
        client = CountedRC(**self.dev_info, operation=SEND, cntr_type=REQUESTS)
        caps = client.ctx.query_comp_cntr_caps()
        self.assertEqual((caps.max_value, caps.supported_qp_attach_ops), (2 ** 64 - 1, ALL))
        client.cntr.set(3)
        client.cntr.inc(4)
        client.cntr.set_err(5)
        client.cntr.inc_err(6)
        self.assertEqual((client.cntr.read(), client.cntr.read_err()), (7, 11))

    def test_sends(self):
        sent, received = self.counted(SEND, RECV, REQUESTS, self.traffic)
        # The traffic goes both ways.
        self.expect(sent, self.iters)
        self.expect(received, self.iters)

    def test_bytes(self):
        sent, received = self.counted(SEND, RECV, BYTES, self.traffic)
        self.expect(sent, self.iters * self.client.msg_size)
        self.expect(received, self.iters * self.client.msg_size)

    def test_writes(self):
        for cntr_type in (REQUESTS, BYTES):
            def run(client, server):
                u.rdma_traffic(client, server, self.iters, self.gid_index, self.ib_port,
                               send_op=ibv_wr_opcode.IBV_WR_RDMA_WRITE)
            written, arrived = self.counted(WRITE, REMOTE_WRITE, cntr_type, run)
            factor = self.client.msg_size if cntr_type else 1
            self.expect(written, self.iters * factor)
            self.expect(arrived, self.iters * factor)

    def test_reads(self):
        def run(client, server):
            server.mr.write('s' * server.msg_size, server.msg_size)
            u.rdma_traffic(client, server, self.iters, self.gid_index, self.ib_port,
                           send_op=ibv_wr_opcode.IBV_WR_RDMA_READ)
        read, served = self.counted(READ, REMOTE_READ, REQUESTS, run)
        self.expect(read, self.iters)
        self.expect(served, self.iters)
