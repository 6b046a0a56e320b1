package bench

import (
	"os"
	"slices"
	"testing"
)

// The test binary is also the helper processes of S5.
func TestMain(m *testing.M) {
	if n := len(os.Args) - 1; n == 3 && slices.Equal(os.Args[1:n], ChildCommand) {
		if Child(os.Args[n], os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
