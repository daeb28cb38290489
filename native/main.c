/* Which of its lives the program begins: the spawner and the unpacker of images are started by name; init is forked from the spawner. */
#include "image-unpack.h"
#include "spawner.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	if ((argc == 2 || argc == 3) && strcmp(argv[1], "spawner") == 0)
		return spawner_main(argc, argv);
	if (argc == 3 && strcmp(argv[1], "unpack") == 0)
		return image_unpack_main(argv[2]);
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		puts("atoll-init protocol 1");
		return 0;
	}
	fputs("usage: atoll-init spawner [DIRECTORY]   (with its socket as descriptor 3)\n       atoll-init unpack DIRECTORY\n", stderr);
	return 2;
}
