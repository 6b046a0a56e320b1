//go:build !interop

package embedded

// rounds is how often a node is evicted, for each transport and mode.
const rounds = 10
