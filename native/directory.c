/* See directory.h. */
#include "directory.h"

#include <sys/syscall.h>
#include <unistd.h>

bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

int directory_begin(struct directory_reader *reader, int directory)
{
	reader->directory = directory;
	reader->at = reader->count = 0;
	return lseek(directory, 0, SEEK_SET) < 0 ? -1 : 0;
}

int directory_next(struct directory_reader *reader, const struct directory_entry **entry)
{
	for (;;) {
		if (reader->at == reader->count) {
			reader->at = 0;
			reader->count = syscall(SYS_getdents64, reader->directory, reader->bytes, sizeof(reader->bytes));
			if (reader->count <= 0) {
				int result = (int)reader->count;
				reader->count = 0;
				return result;
			}
		}
		*entry = (const struct directory_entry *)(reader->bytes + reader->at);
		reader->at += (*entry)->length;
		if (!is_dots((*entry)->name))
			return 1;
	}
}
