package chart

import (
	"fmt"
	"strings"
)

// value is a key of values.yaml and what its comment says.
type value struct {
	key, standard, comment string
}

// Values makes the page about values: each key with its default and its comment, in
// the order of the file. A comment that begins with "-- " is about the key below it.
func Values(text string) string {
	out := []string{"# Values of the chart", "", "Made of `charts/csi-mpath/values.yaml` by `make chart`. A key that is not here is refused.", "", "| key | default | meaning |", "|---|---|---|"}
	for _, v := range parseValues(text) {
		out = append(out, fmt.Sprintf("| `%s` | %s | %s |", v.key, quoted(v.standard), strings.ReplaceAll(v.comment, "|", `\|`)))
	}
	return strings.Join(out, "\n") + "\n"
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
}

// parseValues reads the file's own style: block maps, with values of one line below.
func parseValues(text string) (out []value) {
	var path []string
	comment := ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		switch {
		case trimmed == "":
			comment = ""
		case strings.HasPrefix(trimmed, "# -- "):
			comment = strings.TrimPrefix(trimmed, "# -- ")
		case strings.HasPrefix(trimmed, "#"):
			if comment != "" {
				comment += " " + strings.TrimSpace(strings.TrimPrefix(trimmed, "#"))
			}
		case strings.HasPrefix(trimmed, "- "): // an item of the key above
			if n := len(out); n > 0 && out[n-1].standard == "" {
				out[n-1].standard = "[" + strings.TrimPrefix(trimmed, "- ") + "]"
			}
		default:
			key, standard, _ := strings.Cut(trimmed, ":")
			path = append(path[:min(depth, len(path))], key)
			if standard = strings.TrimSpace(standard); standard != "" || !opens(lines[i+1:], depth) {
				out = append(out, value{strings.Join(path, "."), standard, comment})
			}
			comment = ""
		}
	}
	return out
}

// opens reports whether a key is a map, whose own keys are told of instead.
func opens(below []string, depth int) bool {
	for _, line := range below {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		return !strings.HasPrefix(trimmed, "- ") && (len(line)-len(strings.TrimLeft(line, " ")))/2 > depth
	}
	return false
}
