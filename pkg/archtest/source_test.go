package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/csi-mpath/csi-mpath"

// source is one Go file, parsed.
type source struct {
	path string // from the module's root, with slashes
	text string
	fset *token.FileSet
	file *ast.File
}

// isTest reports whether the file is compiled into tests only.
func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// generated reports whether the file says that a program wrote it.
func (s *source) generated() bool { return ast.IsGenerated(s.file) }

// pkg is the directory from the module's root: pkg/blk, cmd/csi-mpath.
func (s *source) pkg() string { return filepath.ToSlash(filepath.Dir(s.path)) }

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// imports lists the import paths.
func (s *source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func parse(path, text string) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return &source{path: path, text: text, fset: fset, file: f}, err
}

func mustParse(t *testing.T, path, text string) *source {
	t.Helper()
	s, err := parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// root finds the directory of go.mod above the test's own.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = filepath.Dir(dir)
	}
}

// files lists the module's files with one of the suffixes, from its root;
// hidden directories, build output and test data are left out.
func files(t *testing.T, suffixes ...string) []string {
	t.Helper()
	base := root(t)
	var out []string
	err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(p, base), string(filepath.Separator)))
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && rel != "" && rel != ".ci"
			if hidden || d.Name() == "testdata" || rel == "bin" || rel == "out" {
				return filepath.SkipDir
			}
			return nil
		}
		for _, s := range suffixes {
			if strings.HasSuffix(rel, s) {
				out = append(out, rel)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, rel string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(rel)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sources parses every Go file of the module.
func sources(t *testing.T) []*source {
	t.Helper()
	var out []*source
	for _, f := range files(t, ".go") {
		out = append(out, mustParse(t, f, read(t, f)))
	}
	if len(out) < 10 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

// checkAll runs one rule over every file and reports its findings.
func checkAll(t *testing.T, rule func(*source) []string) {
	t.Helper()
	for _, s := range sources(t) {
		for _, finding := range rule(s) {
			t.Error(finding)
		}
	}
}
