package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository's, from here.
const root = "../.."

// parse reads the product's Go files below a directory, tests left out.
func parse(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
		files = append(files, f)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatal(dir, len(files), err)
	}
	return files
}

// each calls f for every node of a kind.
func each[N ast.Node](files []*ast.File, f func(N)) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if x, is := n.(N); is {
				f(x)
			}
			return true
		})
	}
}

// text is a string literal's value; concatenated ones count as one.
func text(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			s, err := strconv.Unquote(x.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		a, isA := text(x.X)
		b, isB := text(x.Y)
		return a + b, isA && isB && x.Op == token.ADD
	}
	return "", false
}

// name is that of what a call calls, without its package.
func name(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fresh compares what is between a page's markers with a table, or writes it.
func fresh(t *testing.T, page, part string, lines []string) {
	t.Helper()
	begin, end := "<!-- made of the code: "+part+" -->\n", "<!-- end -->"
	all := read(t, page)
	before, rest, is := strings.Cut(all, begin)
	old, after, closed := strings.Cut(rest, end)
	if !is || !closed {
		t.Fatalf("%s has no part %q", page, part)
	}
	want := strings.Join(lines, "\n") + "\n"
	if old == want {
		return
	}
	if !*update {
		t.Fatalf("%s is stale: 'make docs' writes %q again. It has\n%swant\n%s", page, part, old, want)
	}
	if err := os.WriteFile(filepath.Join(root, page), []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func row(cells ...string) string {
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func sorted(set map[string]bool) (out []string) {
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
