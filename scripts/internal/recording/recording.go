// Package recording keeps what commands show on a terminal, with the time of each part, and draws it as an animated SVG. The
// pictures of the documents are made so, of real runs. The file has the form of asciicast, version 2.
package recording

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// Recording is what a terminal of Width × Height characters was sent.
type Recording struct {
	Width, Height int
	Title         string
	Parts         []Part
}

// Part is some output, and when it came, from the beginning on.
type Part struct {
	At   time.Duration
	Text string
}

// header is the first line of the file.
type header struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Title   string `json:"title,omitempty"`
}

// Read reads a recording. Parts that are no output are left out.
func Read(r io.Reader) (Recording, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	var rec Recording
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			var h header
			if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
				return rec, fmt.Errorf("line 1: %w", err)
			}
			if h.Version != 2 || h.Width < 1 || h.Height < 1 {
				return rec, fmt.Errorf("line 1: no recording of version 2: %s", lines.Bytes())
			}
			rec = Recording{Width: h.Width, Height: h.Height, Title: h.Title}
			continue
		}
		var seconds float64
		var kind, text string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&seconds, &kind, &text}); err != nil {
			return rec, fmt.Errorf("line %d: %w", n, err)
		}
		if kind == "o" {
			rec.Parts = append(rec.Parts, Part{time.Duration(math.Round(seconds*1e6)) * time.Microsecond, text})
		}
	}
	if rec.Width == 0 && lines.Err() == nil {
		return rec, io.ErrUnexpectedEOF
	}
	return rec, lines.Err()
}

// WriteTo writes the recording as a file.
func (rec Recording) WriteTo(w io.Writer) (n int64, err error) {
	line := func(v any) {
		if err != nil {
			return
		}
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			var m int
			m, err = w.Write(append(b, '\n'))
			n += int64(m)
		}
	}
	line(header{2, rec.Width, rec.Height, rec.Title})
	for _, p := range rec.Parts {
		line([]any{p.At.Round(time.Millisecond).Seconds(), "o", p.Text})
	}
	return n, err
}

// frame is a screen that stood still from an instant on.
type frame struct {
	at    time.Duration
	lines []string
}

// brief is how long a screen has to stand to be seen: others are shown with what follows them.
const brief = 60 * time.Millisecond

// frames are the screens of the recording, one after the other.
func (rec Recording) frames() (all []frame, err error) {
	s := NewScreen(rec.Width, rec.Height)
	for i, p := range rec.Parts {
		if err := s.Write(p.Text); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		if i+1 < len(rec.Parts) && rec.Parts[i+1].At-p.At < brief {
			continue
		}
		all = append(all, frame{p.At, s.Lines()})
	}
	return all, nil
}
