package archtest

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

const (
	maxFileLines = 400
	maxFuncLines = 70
)

// longReason is the start of the doc comment line that lets a function be long.
const longReason = "Long: "

func fileLengthFindings(s *source) []string {
	if s.generated() {
		return nil
	}
	if n := strings.Count(s.text, "\n"); n > maxFileLines {
		return []string{fmt.Sprintf("%s: %d lines, at most %d: split it where the idea changes", s.path, n, maxFileLines)}
	}
	return nil
}

func funcLengthFindings(s *source) []string {
	if s.generated() {
		return nil
	}
	var out []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		n := s.line(f.End()) - s.line(f.Pos()) + 1
		if n > maxFuncLines && !hasReason(f.Doc) {
			out = append(out, fmt.Sprintf("%s:%d: %s has %d lines, at most %d (or a doc comment line %q with the reason)",
				s.path, s.line(f.Pos()), f.Name.Name, n, maxFuncLines, "// "+longReason))
		}
	}
	return out
}

func hasReason(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		text := strings.TrimPrefix(c.Text, "// ")
		if rest, ok := strings.CutPrefix(text, longReason); ok && strings.TrimSpace(rest) != "" {
			return true
		}
	}
	return false
}

func TestFilesAreShort(t *testing.T) { checkAll(t, fileLengthFindings) }

func TestFunctionsAreShort(t *testing.T) { checkAll(t, funcLengthFindings) }

func TestTheLengthRulesBite(t *testing.T) {
	body := strings.Repeat("\t_ = 0\n", maxFuncLines)
	long := "func f() {\n" + body + "}\n"
	if got := funcLengthFindings(mustParse(t, "x.go", "package x\n\n"+long)); len(got) != 1 {
		t.Errorf("a long function: got %v", got)
	}
	for _, doc := range []string{"// Long: one table.\n", "// f does it.\n//\n// Long: one table.\n"} {
		if got := funcLengthFindings(mustParse(t, "x.go", "package x\n\n"+doc+long)); len(got) != 0 {
			t.Errorf("a long function with a reason: got %v", got)
		}
	}
	if got := funcLengthFindings(mustParse(t, "x.go", "package x\n\n// Long: \n"+long)); len(got) != 1 {
		t.Errorf("an empty reason: got %v", got)
	}
	if got := fileLengthFindings(mustParse(t, "x.go", "package x"+strings.Repeat("\n", maxFileLines+1))); len(got) != 1 {
		t.Errorf("a long file: got %v", got)
	}
}
