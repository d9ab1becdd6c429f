/* Whether memory of malloc(3) is registered: before a node, with a node, after pw_malloc(). With malloc(3) from the heap it always is. */
#include <pagewire.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	char *large = calloc(100000, 1), *small = calloc(100, 1), *object;
	pw_node *node;

	printf("%d %d, ", pw_is_registered(large), pw_is_registered(small));
	if (pw_node_alone(&node))
		pw_die("pw_node_alone");
	printf("%d %d, ", pw_is_registered(large), pw_is_registered(small));
	object = pw_malloc(10);
	printf("%d %d %d\n", pw_is_registered(large), pw_is_registered(small), pw_is_registered(object));
	pw_free(object);
	free(large);
	free(small);
	pw_node_leave(node);
	return 0;
}
