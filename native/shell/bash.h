/*
 * The few names of bash that a session uses. No headers of bash are needed: these have meant the same since bash 4.4, and each is weak, so
 * that what a bash lacks is found out by looking and not by a failure to load.
 */
#ifndef ATOLL_SHELL_BASH_H
#define ATOLL_SHELL_BASH_H

#define WEAK __attribute__((weak))

/* SHELL_VAR */
struct variable {
	char *name, *value, *exported_text;
	void *dynamic_value, *assign_function;
	int attributes, context;
};

enum { VARIABLE_EXPORTED = 1, VARIABLE_READ_ONLY = 2 };

enum { EVALUATE_NO_FREE = 0x008, EVALUATE_FROM_LINE_1 = 0x010, EVALUATE_AS_SCRIPT = 0x400 /* no exec in place of a fork */ };

/* Without these there is no session. */
extern int parse_and_execute(char *text, const char *name, int flags) WEAK;
extern struct variable *find_variable(const char *name) WEAK;
extern struct variable *bind_variable(const char *name, char *value, int flags) WEAK;
extern int unbind_variable(const char *name) WEAK;
extern void stupidly_hack_special_variables(const char *name) WEAK;
extern void xfree(void *memory) WEAK;
extern _Noreturn void exit_shell(int status) WEAK;
extern int fork(void) WEAK;
extern void set_working_directory(char *path) WEAK;
extern void without_job_control(void) WEAK;
extern void reset_signal_handlers(void) WEAK;
extern void reset_terminating_signals(void) WEAK;
extern void unset_bash_input(int also_stdin) WEAK;
extern int last_command_exit_value WEAK;
extern int array_needs_making WEAK;
extern int parse_and_execute_level WEAK;
extern int indirection_level WEAK;
extern int startup_state WEAK;
extern int subshell_environment WEAK;
extern int expand_aliases WEAK;
extern char *the_current_working_directory WEAK;
/* Where bash jumps with one of the codes below when it gives up a command, and libc's way to be there. */
extern char top_level[] WEAK;
extern int _setjmp(void *place) WEAK __attribute__((returns_twice));

enum { JUMP_DISCARD = 2, JUMP_ERROR_EXIT = 4 };

/* Not in every version; a session does without. */
extern struct variable *find_variable_noref(const char *name) WEAK;
extern void set_sigint_handler(void) WEAK;
extern void clear_pending_traps(void) WEAK;
extern void termsig_handler(int signal) WEAK;
extern int terminating_signal WEAK;
extern void reset_local_contexts(void) WEAK;
extern void restore_sigmask(void) WEAK;
extern void dispose_used_env_vars(void) WEAK;
extern void *temporary_env WEAK;
extern int exit_immediately_on_error WEAK;
extern int expaliases_flag WEAK;
extern int read_from_stdin WEAK;
extern char *dollar_vars[] WEAK; /* the first is $0 */
extern int executing_builtin WEAK;
extern int subshell_level WEAK;
extern int login_shell WEAK;

#endif
