package sim

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Script is a run: its setup, and what happens when. As text:
//
//	# a comment
//	set seed 17
//	set paths 1/1,2/1
//	1.5s cut 1
//	2s hole 2 both for 3s
//
// verbs.go has the verbs.
type Script struct {
	Setup Setup
	Steps []Step
}

// Step is one fault: at a time of the run, for a while.
type Step struct {
	At   time.Duration
	Verb string
	Args []string
	For  time.Duration // 0 for what happens at once
}

// String is the step as a line of a script.
func (s Step) String() string {
	out := fmt.Sprintf("%v %s", s.At, s.Verb)
	for _, a := range s.Args {
		out += " " + a
	}
	if s.For > 0 {
		out += fmt.Sprintf(" for %v", s.For)
	}
	return out
}

// String is the script as text that Parse reads. Defaults are left out.
func (s *Script) String() string {
	var b strings.Builder
	def := defaults()
	was := def.lines()
	s.Setup.lines().VisitAll(func(f *flag.Flag) {
		name, value := f.Name, f.Value.String()
		if value != was.Lookup(name).Value.String() || name == "seed" {
			fmt.Fprintf(&b, "set %s %s\n", name, value)
		}
	})
	for _, st := range s.Steps {
		fmt.Fprintln(&b, st)
	}
	return b.String()
}

// Parse reads a script.
func Parse(r io.Reader) (*Script, error) {
	s := &Script{Setup: defaults()}
	set := s.Setup.lines()
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, maxLine), maxLine)
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(s.Steps) >= maxSteps {
			return nil, fmt.Errorf("script: more than %d steps", maxSteps)
		}
		var err error
		if words[0] == "set" {
			if len(words) != 3 {
				return nil, fmt.Errorf("script line %d: want set NAME VALUE", n)
			}
			err = set.Set(words[1], words[2])
		} else {
			err = s.step(words)
		}
		if err != nil {
			return nil, fmt.Errorf("script line %d: %w", n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return s, s.check()
}

// step reads one step.
func (s *Script) step(words []string) (err error) {
	var st Step
	if st.At, err = span(words[0]); err != nil || len(words) < 2 {
		return fmt.Errorf("want TIME VERB [ARGUMENTS] [for TIME]")
	}
	st.Verb, words = words[1], words[2:]
	if n := len(words); n >= 2 && words[n-2] == "for" {
		if st.For, err = span(words[n-1]); err != nil {
			return err
		}
		words = words[:n-2]
	}
	st.Args = words
	s.Steps = append(s.Steps, st)
	return nil
}

func span(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && (d < 0 || d > maxTime) {
		err = fmt.Errorf("%v is not in 0..%v", d, maxTime)
	}
	return d, err
}

// check refuses what cannot be played.
func (s *Script) check() error {
	if err := s.Setup.check(); err != nil {
		return fmt.Errorf("script: %w", err)
	}
	for _, st := range s.Steps {
		v, ok := verbs[st.Verb]
		if !ok {
			return fmt.Errorf("script: no verb %q in %q", st.Verb, st)
		}
		if err := v.fits(&s.Setup, &st); err != nil {
			return fmt.Errorf("script: %q: %w", st, err)
		}
	}
	return nil
}
