/* A library beside another, in a folder that only that one knows. */
int plugin_answer(void);
int plugin_answer(void) { return 42; }
