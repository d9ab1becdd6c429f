#include "motion.h"

int main(int argc, char **argv)
{
	return motion_main(argc, argv);
}
