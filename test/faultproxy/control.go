package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Help describes the line protocol.
const Help = `One command a line; each is answered by one line, "ok ..." or "error ...".
  cut|reset|hole|hold|delay TIME|throttle BYTES/S|drop BYTES|flip BYTES [0xMASK]
      [both|to-target|to-client] [at BYTE | after TIME]
  release [DIRECTION]   deliver what hold kept back
  refuse | accept       close and open the listening port
  heal                  end everything; new connections pass
  stats                 counters
  quit                  close all connections and end`

// ErrQuit says that the peer of Serve asked to end.
var ErrQuit = errors.New("faultproxy: quit")

// Command runs one line of the control protocol and returns its answer.
func (p *Proxy) Command(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "ok"
	}
	out, err := p.run(words)
	if err != nil {
		return "error " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return strings.TrimSpace("ok " + out)
}

func (p *Proxy) run(words []string) (string, error) {
	switch words[0] {
	case "release":
		d := Both
		if len(words) > 1 {
			var ok bool
			if d, ok = dirNames[words[1]]; !ok {
				return "", fmt.Errorf("%q is no direction", words[1])
			}
		}
		p.Release(d)
		return "", nil
	case "refuse":
		p.Refuse()
		return "", nil
	case "accept":
		return "", p.Accept()
	case "heal":
		return "", p.Heal()
	case "stats":
		s := p.Stats()
		return fmt.Sprintf("accepted=%d open=%d to-target=%d to-client=%d discarded=%d",
			s.Accepted, s.Open, s.ToTarget, s.ToClient, s.Discarded), nil
	case "help":
		return strings.ReplaceAll(Help, "\n", " "), nil
	}
	o, err := parseOrder(words)
	switch {
	case err != nil:
		return "", err
	case o.at >= 0:
		return "", p.AtByte(o.at, o.fault)
	case o.hasFor:
		return "", p.After(o.after, o.fault)
	}
	return "", p.Now(o.fault)
}

// Serve answers commands until r ends (nil), "quit" (ErrQuit) or an error.
func (p *Proxy) Serve(r io.Reader, w io.Writer) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "quit" {
			_, _ = fmt.Fprintln(w, "ok")
			return ErrQuit
		}
		if _, err := fmt.Fprintln(w, p.Command(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}
