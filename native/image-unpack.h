/* Writing the tree of an image; see image-unpack.c. */
#ifndef ATOLL_IMAGE_UNPACK_H
#define ATOLL_IMAGE_UNPACK_H

/* `atoll-init unpack DIRECTORY`: frames on standard input, one answer on standard output. Returns the exit status. */
int image_unpack_main(const char *directory);

#endif
