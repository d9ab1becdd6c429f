/* The Ethernet address of the first device, which is the program's argument, is found by each of the device's GIDs. */
#include "check.h"

int main(int count, char **arguments)
{
	struct ibv_context *context = open_first_device();
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	uint8_t mac[ETHERNET_LL_SIZE];
	char text[sizeof("00:00:00:00:00:00")];
	struct ibv_port_attr port;
	uint16_t vlan;

	CHECK(count == 2);
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.gid_tbl_len > 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		attr.grh.sgid_index = i;
		CHECK(ibv_query_gid(context, 1, i, &attr.grh.dgid) == 0);
		memset(mac, 0xee, sizeof(mac));
		vlan = 1;
		CHECK(ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan) == 0);
		snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
			 mac[5]);
		CHECK(strcmp(text, arguments[1]) == 0);
		CHECK(vlan == 0xffff);
	}
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
