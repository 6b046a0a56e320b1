// mutate puts known bugs into copies of the source, one at a time, and lets the
// simulator look for them: a bug that stays unseen is a hole in the simulator.
//
//	go run ./test/mutate [-seeds 500] [-run WORDS]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	seeds := flag.Int("seeds", 500, "seeds to try for each bug")
	first := flag.Int("seed", 1, "first of them")
	run := flag.String("run", "", "only bugs whose name contains this")
	flag.Parse()
	if err := mutate(*seeds, *first, *run); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutate(seeds, first int, run string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	good := filepath.Join(tmp, "good")
	if err := copyTree(root, good); err != nil {
		return err
	}
	var missed []string
	fmt.Printf("%-75s %8s %9s  %s\n", "bug", "seed", "seconds", "how it showed")
	for _, b := range bugs {
		if !strings.Contains(b.name, run) {
			continue
		}
		seed, took, how, err := hunt(good, tmp, b, seeds, first)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if seed == "" {
			missed = append(missed, b.name)
			seed = "none"
		}
		fmt.Printf("%-75s %8s %9.1f  %.110s\n", b.name, seed, took.Seconds(), how)
	}
	if len(missed) > 0 {
		return fmt.Errorf("not caught within %d seeds:\n  %s", seeds, strings.Join(missed, "\n  "))
	}
	return nil
}

// hunt puts one bug into a copy of the good source, and plays seeds.
func hunt(good, tmp string, b bug, seeds, first int) (seed string, took time.Duration, how string, err error) {
	bad := filepath.Join(tmp, "bad")
	if err := os.CopyFS(bad, os.DirFS(good)); err != nil {
		return "", 0, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bad)) }()
	for _, e := range b.edits {
		if err := e.apply(bad); err != nil {
			return "", 0, "", err
		}
	}
	bin := filepath.Join(tmp, "sim.test")
	build := exec.Command("go", "test", "-c", "-o", bin, "./pkg/sim")
	build.Dir = bad
	if out, err := build.CombinedOutput(); err != nil {
		return "", 0, "", fmt.Errorf("%w\n%s", err, out)
	}
	begin := time.Now()
	sim := exec.Command(bin, "-test.run=^TestSeeds$", "-test.timeout=0", "-sim.shrink=false",
		fmt.Sprintf("-sim.seed=%d", first), fmt.Sprintf("-sim.count=%d", seeds))
	sim.Dir = tmp
	out, runErr := sim.CombinedOutput()
	took = time.Since(begin)
	m := failed.FindSubmatch(out)
	if m == nil {
		if runErr != nil {
			return "", took, "", fmt.Errorf("%w\n%s", runErr, out)
		}
		return "", took, "", nil
	}
	return string(m[1]), took, string(m[2]), nil
}

// failed is how the simulator says so.
var failed = regexp.MustCompile(`(?m)^seed (\d+) after .* failed:\n  (.*)$`)

// apply edits the copy; it fails when the source is not as it was.
func (e edit) apply(root string) error {
	path := filepath.Join(root, e.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := bytes.Count(src, []byte(e.old)); n != 1 {
		return fmt.Errorf("%s has %d times what is to be replaced, want it once: the source has changed, adapt test/mutate/bugs.go:\n%s", e.file, n, e.old)
	}
	return os.WriteFile(path, bytes.Replace(src, []byte(e.old), []byte(e.new), 1), 0o600)
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above: run it inside the repository")
		}
		dir = up
	}
	return "", err
}

// copyTree copies what the simulator is built from.
func copyTree(root, to string) error {
	for _, f := range []string{"go.mod", "go.sum"} {
		if err := copyFile(root, to, f); err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return copyFile(root, to, rel)
	})
}

func copyFile(from, to, rel string) error {
	b, err := os.ReadFile(filepath.Join(from, rel))
	if err != nil {
		return err
	}
	path := filepath.Join(to, rel)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
