package proc

import (
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// Preview is what a run would do.
type Preview struct {
	Items     int
	Remaining int       // to run, those included that are blocked
	Blocked   []Blocked // by what earlier runs did
}

// Planned is an item that a run would run.
type Planned struct {
	ID      string   `json:"custom_id"`       // ID of the item.
	Stage   string   `json:"stage,omitempty"` // Stage.
	Command []string `json:"command"`         // Words of the command.
}

// ReadPreview reads the items of a file and the results of earlier runs, and calls each with every remaining item in the order of the file. It
// runs nothing and changes nothing. An error of each ends it.
func ReadPreview(cfg Config, each func(Planned) error) (Preview, error) {
	x := newExec(cfg)
	if cfg.Items.Path == "-" {
		return Preview{}, &fault.FieldError{Field: "Items", Err: errors.New("standard input can be read only once: use an input file")}
	}
	if err := x.prepare(); err != nil {
		return Preview{}, err
	}
	var err error
	if x.input, err = openInput(x); err != nil {
		return Preview{}, err
	}
	defer x.input.close()
	if err := x.checkState(); err != nil {
		return Preview{}, err
	}
	if err := x.lookBack(); err != nil {
		return Preview{}, err
	}
	already, _ := x.tally.already()
	p := Preview{Items: x.input.chosen, Remaining: x.input.chosen - already, Blocked: x.input.blocked()}
	return p, x.input.plan(each)
}

// lookBack matches what earlier runs recorded, without opening it to write.
func (x *Exec) lookBack() error {
	f, err := regular.Open(ResultsPath(x.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	m := &matcher{x: x, changed: rows.ChangedError{Path: x.cfg.Items.Path, Array: x.input.file.Array()}}
	if len(x.cfg.Items.Only) > 0 || x.cfg.Items.From != "" {
		since, err := x.rerunSince()
		if err != nil {
			return err
		}
		if m.rerun.Since = since; since.IsZero() {
			m.rerun.Since = time.Now()
		}
	}
	lines := work.NewLineReader(f, 0)
	for {
		line, err := lines.Next()
		if err == io.EOF || line.Torn {
			return m.changed.Err()
		}
		if err != nil {
			return err
		}
		if err := m.match(line); err != nil {
			return err
		}
	}
}

// plan gives each item that is left to do.
func (in *input) plan(each func(Planned) error) error {
	for r, err := range in.file.Rows() {
		if err != nil {
			return err
		}
		number := r.Number - 1
		if number >= len(in.offsets) || !in.stages.selected(number) || in.index.Done().Has(number) {
			continue
		}
		item, problem := in.read(r)
		if problem != nil {
			return r.Wrong(in.x.cfg.Items.Path, problem)
		}
		made, err := in.item(item)
		if err != nil {
			return err
		}
		j := made.Data.(*job)
		if in.x.cfg.Command.Persistent {
			j.args = in.x.literals()
		}
		if err := each(Planned{ID: item.id, Stage: item.stage, Command: j.args}); err != nil {
			return err
		}
	}
	return nil
}
