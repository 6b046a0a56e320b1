package directory

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestAFileSystemThatIsNotMountedIsNoEmptyPool(t *testing.T) {
	top := t.TempDir()
	cfg := Config{Path: filepath.Join(top, "pool"), Known: filepath.Join(top, "state", "pools", "p"), Marks: roomy}
	begin := func() error {
		s, err := open(cfg, copying)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := errors.Join(begin(), begin()); err != nil {
		t.Fatal(err)
	}
	mounted := cfg.Path + "-elsewhere"
	if err := os.Rename(cfg.Path, mounted); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it does not get used to it
		if err := begin(); !errors.Is(err, backend.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
	}
	if err := errors.Join(os.RemoveAll(cfg.Path), os.Rename(mounted, cfg.Path), begin()); err != nil {
		t.Error("mounted again:", err)
	}
	if err := errors.Join(os.Remove(cfg.Known), begin()); err != nil {
		t.Error("without the agent's state:", err)
	}
	if err := errors.Join(os.WriteFile(cfg.Known, []byte("?"), 0o600)); err != nil || begin() == nil {
		t.Error("what cannot be read was taken for nothing", err)
	}
}
