/* Traps with queue pairs, and with processes (traps_with_data.c). */
#ifndef TRAPS_H
#define TRAPS_H

#include "ends.h"

void connect_queue_pairs(struct ends *ends);
void destroy_queue_pairs(struct ends *ends);
void trap_9(void);
void trap_12(void);
void trap_20(void);
void trap_25(void);

#endif
