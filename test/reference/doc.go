// Package reference keeps the parts of docs that say what the code has: tunables,
// metrics, error codes, events. Its tests compare; with -update they write the tables
// again. It reads source text and runs nothing, so it knows what is written down, not
// what is reached.
package reference
