#include "motion.h"
void handlers_before(const struct settings *settings) { (void)settings; }
void handlers_after(const struct settings *settings) { (void)settings; }
void handlers_end(void) {}
