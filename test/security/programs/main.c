/* attack NAME [ARGUMENT…]: runs one attack. */
#include "attack.h"

int main(int count, char **arguments)
{
	const struct attack *const tables[] = { call_attacks, process_attacks, resource_attacks, file_attacks, swap_attacks };
	for (size_t i = 0; count > 1 && i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct attack *attack = tables[i]; attack->name != NULL; attack++)
			if (strcmp(attack->name, arguments[1]) == 0) {
				attack->run(count - 2, arguments + 2);
				return 0;
			}
	fprintf(stderr, "no such attack\n");
	return 2;
}
