package archtest

import (
	"fmt"
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A line of test/cases.txt: an id, and what answers it: nothing, for tests that
// are named after the id (B-01: TestB01...); names of tests; "doc" and a text of
// docs/limitations.md; or "open", where the work is not done.
var caseLine = regexp.MustCompile(`^([ABCDR])-([0-9]{1,2})((?: Test[A-Za-z0-9_]+)*)( open)?(?: doc "(.+)")?$`)

// caseFault says what is wrong with a line, "" if nothing is.
func caseFault(line string, tests []string, limitations string) string {
	m := caseLine.FindStringSubmatch(line)
	if m == nil || m[4] != "" && m[3]+m[5] != "" {
		return fmt.Sprintf("%q: want an id, and tests' names, or doc and a text, or open", line)
	}
	id, text := m[1]+"-"+m[2], m[5]
	if text != "" && !strings.Contains(limitations, text) {
		return fmt.Sprintf("%s: docs/limitations.md does not say %q", id, text)
	}
	for _, name := range strings.Fields(m[3]) {
		if !slices.Contains(tests, name) {
			return fmt.Sprintf("%s: there is no test %s", id, name)
		}
	}
	named := func(name string) bool { return strings.HasPrefix(name, "Test"+m[1]+m[2]) }
	if m[3]+m[4]+text == "" && !slices.ContainsFunc(tests, named) {
		return fmt.Sprintf("%s: no test begins with Test%s%s", id, m[1], m[2])
	}
	return ""
}

// testNames are the functions of all test files that are tests.
func testNames(files []*source) (names []string) {
	for _, s := range files {
		if !s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func TestEveryCaseOfAFinishedGroupHasATestOrALimitation(t *testing.T) {
	list, err := os.ReadFile("../../test/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	limitations, err := os.ReadFile("../../docs/limitations.md")
	if err != nil {
		t.Fatal(err)
	}
	// A text may be broken into lines anywhere.
	said := strings.Join(strings.Fields(string(limitations)), " ")
	tests := testNames(sources(t))
	seen := map[string]bool{}
	for n, line := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if fault := caseFault(line, tests, said); fault != "" {
			t.Errorf("test/cases.txt:%d: %s", n+1, fault)
		}
		seen[strings.Fields(line)[0]] = true
	}
	for n := 1; n <= 49; n++ {
		if id := fmt.Sprint("R-", n); !seen[id] {
			t.Errorf("test/cases.txt: %s is missing", id)
		}
	}
}

func TestTheCheckOfCasesFindsWhatIsMissing(t *testing.T) {
	tests := []string{"TestB01IsHere", "TestAnother"}
	for line, ok := range map[string]bool{
		"B-01": true, "B-02": false, "R-1 TestAnother": true, "R-1 TestNobody": false, "A-01 open": true,
		`R-2 doc "is not done"`: true, `R-2 doc "was never said"`: false, "D-1 nonsense": false, "E-01": false,
		"R-3 TestAnother TestB01IsHere": true, "R-3 TestAnother TestNobody": false, `R-3 TestAnother doc "is not done"`: true,
		`R-3 TestAnother doc "was never said"`: false, "R-3 TestAnother open": false,
	} {
		if fault := caseFault(line, tests, "this is not done"); (fault == "") != ok {
			t.Errorf("%s: %q", line, fault)
		}
	}
}
