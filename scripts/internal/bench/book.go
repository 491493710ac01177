package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Book is what was measured, a Record of each step that ever was. It is not safe for concurrent use.
type Book struct {
	Records []*Record `json:"records"`
}

// Record is what a step measured when it was last run whole, and what is to be known of that.
type Record struct {
	Section string `json:"section"`
	Step    string `json:"step"`

	Date    time.Time `json:"date,omitzero"`
	Commit  string    `json:"commit,omitempty"` // with a + behind it where files had changed since
	Machine Machine   `json:"machine,omitzero"`
	Load    float64   `json:"load"`   // of the machine when it began, over one minute
	Took    float64   `json:"took_s"` // in all its rounds
	Rounds  int       `json:"rounds,omitempty"`
	Quick   bool      `json:"quick,omitempty"`
	Failed  string    `json:"failed,omitempty"`  // how the command ended, where it failed
	Note    string    `json:"note,omitempty"`    // of figures that this program did not measure itself: what is known of them
	Missing string    `json:"missing,omitempty"` // why it was not measured when it was last asked for

	Figures []Figure `json:"figures,omitempty"`
}

// figure is what was measured of a name in a unit, or nil.
func (r *Record) figure(name, unit string) *Figure {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Name == name && f.Unit == unit {
			return f
		}
	}
	return nil
}

// Open reads a book. One that is not there is empty.
func Open(path string) (*Book, error) {
	b := new(Book)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(data, b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Save replaces the book's file.
func (b *Book) Save(path string) error {
	var text bytes.Buffer
	text.WriteString("{\"records\":[")
	for i, r := range b.Records {
		head := *r
		head.Figures = nil
		line, err := json.Marshal(head)
		if err != nil {
			return err
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "\n%s", line[:len(line)-1])
		for j, f := range r.Figures {
			between := ","
			if j == 0 {
				between = ",\"figures\":["
			}
			line, err := json.Marshal(f)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "%s\n %s", between, line)
		}
		if len(r.Figures) > 0 {
			text.WriteByte(']')
		}
		text.WriteByte('}')
	}
	text.WriteString("\n]}\n")
	return Replace(path, text.Bytes())
}

// Replace puts a whole file in the place of another.
func Replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".bench-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already where all went well
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// record is that of a step, or nil.
func (b *Book) record(section, step string) *Record {
	for _, r := range b.Records {
		if r.Section == section && r.Step == step {
			return r
		}
	}
	return nil
}

// put enters what a step measured in place of what it measured before.
func (b *Book) put(r *Record) {
	for i, old := range b.Records {
		if old.Section == r.Section && old.Step == r.Step {
			b.Records[i] = r
			return
		}
	}
	b.Records = append(b.Records, r)
}

// missed says why a step was not measured. What it measured before stays.
func (b *Book) missed(section, step, why string) {
	r := b.record(section, step)
	if r == nil {
		r = &Record{Section: section, Step: step}
		b.put(r)
	}
	r.Missing = why
}

// Sort puts the records in the order of the sections, and forgets those of steps that are no more.
func (b *Book) Sort(sections []Section) {
	var all []*Record
	for _, s := range sections {
		for _, step := range s.Steps {
			if r := b.record(s.Name, step.Name); r != nil {
				all = append(all, r)
			}
		}
	}
	b.Records = all
}
