package proc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// input is the items of a run. A file is read twice: once by scan, which checks it, and then item by item as each may start.
// Standard input is read as it comes, so that its items can need no others.
type input struct {
	x    *Exec
	file *rows.File // nil: standard input

	index   work.Index // of the items, by number; of standard input, of those in the journal
	offsets []int64    // where the items of a file are, by number; -1 is none
	total   int
	stages  stages
	chosen  int                  // items that this run is to do, with those that are done
	dropped map[string]time.Time // when the results ended that do not count any more, by id

	mu      sync.Mutex
	arrived int // items of standard input
	ended   bool
}

// row is an item as it is read.
type row struct {
	number int // its line, or its place in a JSON array, less one
	array  bool
	id     string
	stage  string
	needs  []string
	hash   work.Hash
	values values
	raw    []byte // JSON: the object, or the text as a string
}

func openInput(x *Exec) (*input, error) {
	in := &input{x: x}
	if x.cfg.Items.Path == "-" {
		if len(x.cfg.Items.Only) > 0 || x.cfg.Items.From != "" {
			return nil, &fault.FieldError{Field: "Items", Err: errors.New("stages can be selected only in an input file, not in standard input")}
		}
		if x.cfg.Items.Changed == rows.ChangedRedo { // their old lines could not go with the first new one: nobody knows yet which they are
			return nil, &fault.FieldError{Field: "Items", Err: errors.New("changed items can run again only with an input file, not with standard input")}
		}
		return in, nil
	}
	file, err := rows.Open(x.cfg.Items.Path, nil)
	if err != nil {
		return nil, &fault.FieldError{Field: "Items", Err: err}
	}
	in.file = file
	if err := in.scan(); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close()
	}
}

// known is how many items the run has; 0 while that is not known.
func (in *input) known() int {
	if in.file != nil {
		return in.chosen
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return in.arrived
	}
	return 0
}

// scan reads the file and checks every item.
func (in *input) scan() error {
	var bad rows.Errors
	for r, err := range in.file.Rows() {
		if wrong, ok := errors.AsType[*rows.Error](err); ok { // there is no reading on
			bad.Add(wrong)
			break
		}
		if err != nil {
			return &fault.FieldError{Field: "Items", Err: err}
		}
		item, problem := in.read(r)
		if problem == nil {
			problem = in.remember(item, r.Offset)
		}
		if problem != nil {
			bad.Add(r.Wrong(in.x.cfg.Items.Path, problem))
		}
		if in.total++; in.x.cfg.Items.Limit > 0 && in.total == in.x.cfg.Items.Limit {
			break
		}
	}
	if err := bad.Err(); err != nil {
		return err
	}
	return in.choose()
}

// remember enters an item of a file.
func (in *input) remember(item *row, offset int64) *rows.Problem {
	if other, ok := in.index.Add(item.number, []byte(item.id), item.hash); !ok {
		return item.twice(other)
	}
	for len(in.offsets) < item.number {
		in.offsets = append(in.offsets, -1)
	}
	in.offsets = append(in.offsets, offset)
	in.stages.add(item.number, item.stage, item.needs)
	return nil
}

// twice is the problem of an item with the id of another one.
func (item *row) twice(other int) *rows.Problem {
	return &rows.Problem{
		Text: fmt.Sprintf("the id %q is also in %s", item.id, rows.Place(other+1, item.array)), Hint: "give each item a different custom_id",
	}
}

// choose checks what stages need of each other, and leaves out those that are not to run.
func (in *input) choose() error {
	if number, problem := in.stages.check(); problem != nil {
		return rows.Numbered(number+1, in.file.Array()).Wrong(in.x.cfg.Items.Path, problem)
	}
	if len(in.x.cfg.Items.Only) > 0 {
		if err := in.stages.only(in.x.cfg.Items.Only...); err != nil {
			return &fault.FieldError{Field: "Only", Err: err}
		}
	}
	if in.x.cfg.Items.From != "" {
		if err := in.stages.from(in.x.cfg.Items.From); err != nil {
			return &fault.FieldError{Field: "From", Err: err}
		}
	}
	for i := range in.stages.all {
		if s := &in.stages.all[i]; !s.out {
			in.chosen += s.size
		}
	}
	return nil
}

// read makes an item of a row, and fills in its command to see that it can be.
func (in *input) read(r rows.Row) (*row, *rows.Problem) {
	if r.Bad != nil {
		return nil, r.Bad
	}
	item := &row{number: r.Number - 1, array: r.Source != 0, id: fmt.Sprint(r.Number)}
	item.values = values{line: r.Number}
	if !utf8.Valid(r.Bytes) {
		return nil, &rows.Problem{Text: "not valid UTF-8", Hint: "save the items as UTF-8"}
	}
	if problem := item.parse(r.Bytes, r.Text); problem != nil {
		return nil, problem
	}
	item.values.id = item.id
	item.hash = work.HashOf(in.x.settings[:], r.Bytes)
	item.values.dir = in.x.itemDir(r.Number, item.id).path
	if in.file == nil && len(item.needs) > 0 {
		return nil, &rows.Problem{Text: "the field needs is not supported with standard input", Hint: "put the items into a file"}
	}
	if in.x.cfg.Command.Persistent {
		return item, nil
	}
	_, problem := in.x.template.fill(&item.values)
	return item, problem
}

// parse reads what a row holds.
func (item *row) parse(line []byte, text bool) *rows.Problem {
	s := jsonscan.New(line)
	if text || s.Peek() != '{' {
		item.values.item = string(line)
		if !text && s.Peek() == '"' && jsonscan.Valid(line) {
			item.values.item = plain(bytes.TrimSpace(line))
		}
		item.raw = jsonscan.AppendString(nil, item.values.item)
		return nil
	}
	item.values.fields = make(map[string]string)
	var custom, id, needs []byte
	for s.Enter('{'); s.Next('}'); {
		name := string(jsonscan.Name(s.Key()))
		value := s.Span()
		switch name {
		case "custom_id":
			custom = value
		case "id":
			id = value
		case "needs":
			needs = value
		}
		item.values.fields[name] = plain(value)
	}
	if !s.End() {
		return &rows.Problem{Text: fmt.Sprintf("broken JSON at byte %d", min(s.Offset(), len(line)-1)+1),
			Hint: "write the item as a JSON object, or as a JSON string if its text begins with {"}
	}
	item.raw = jsonscan.AppendCompact(nil, line)
	item.values.item = string(item.raw)
	item.stage = cmp.Or(item.values.fields["stage"], item.values.fields["tier"])
	if custom == nil {
		custom = id
	}
	if custom != nil && !bytes.Equal(custom, []byte("null")) {
		if item.id = plain(custom); item.id == "" {
			return &rows.Problem{Text: "the id of the item is empty"}
		}
	}
	problem := item.parseNeeds(needs)
	if problem == nil && item.stage == "" && len(item.needs) > 0 {
		problem = &rows.Problem{Text: "the item has the field needs, but not the field stage", Hint: "set the stage of the item"}
	}
	return problem
}

// parseNeeds reads a list of names, or one, or such as a table has them: parted by commas.
func (item *row) parseNeeds(value []byte) *rows.Problem {
	if value == nil || bytes.Equal(value, []byte("null")) {
		return nil
	}
	if value[0] == '[' {
		if err := json.Unmarshal(value, &item.needs); err != nil {
			return &rows.Problem{Text: "the field needs is not a list of names", Hint: `write a list, such as "needs": ["T1", "T2"]`}
		}
		return nil
	}
	if value[0] != '"' {
		return &rows.Problem{Text: "the field needs is neither a name nor a list of names", Hint: `write a list, such as "needs": ["T1", "T2"]`}
	}
	for name := range strings.SplitSeq(plain(value), ",") {
		if name = strings.TrimSpace(name); name != "" {
			item.needs = append(item.needs, name)
		}
	}
	return nil
}

// item makes the work item of a row.
func (in *input) item(r *row) (work.Item, error) {
	x := in.x
	j := &job{item: r.raw, text: r.values.item, stage: r.stage, dir: x.itemDir(r.number+1, r.id)}
	item := work.Item{ID: r.id, Seq: int64(r.number) + 1, Lane: x.cfg.Limits.Lane, Hash: r.hash, Size: len(r.raw), Data: j}
	if x.cfg.Command.Stdin {
		j.stdin = append([]byte(r.values.item), '\n')
	}
	var problem *rows.Problem
	if !x.cfg.Command.Persistent {
		j.args, problem = x.template.fill(&r.values)
	}
	if problem == nil && x.template.file != nil {
		j.resultFile, problem = r.values.expand(x.template.file)
	}
	if problem != nil { // the file changed since it was checked
		return work.Item{}, rows.Numbered(r.number+1, r.array).Wrong(x.cfg.Items.Path, problem)
	}
	if x.reopens {
		if done := x.finished(j.dir, r.id, r.hash); done != nil && in.valid(done) {
			item.Given = adopted(done)
		}
	}
	return item, nil
}

// valid says whether a result that was not recorded does: it is from after those that do not count any more, and not one of
// those that are to run again. Of these the lines go with the first new result, and a kill may leave them no more than this.
func (in *input) valid(r *Result) bool {
	if r.State != Succeeded && in.x.cfg.Items.RetryFailed {
		return false
	}
	return r.Ended.After(in.dropped[r.ID]) && !r.Ended.Before(in.x.since)
}

// counts is how many items each stage has.
func (in *input) counts() map[string]int {
	n := make(map[string]int)
	if in.file == nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		n[""] = in.arrived
		return n
	}
	for i := range in.stages.all {
		if s := &in.stages.all[i]; s.size > 0 {
			n[s.name] = s.size
		}
	}
	return n
}

// names are those of the stages, in the order in which they first appear.
func (in *input) names() []string {
	if in.file == nil {
		return nil
	}
	return in.stages.list()
}

// feed gives the items that are left to do.
func (in *input) feed(ctx context.Context) iter.Seq2[work.Item, error] {
	if in.file == nil {
		return in.feedStdin(ctx)
	}
	var reader *rows.Reader
	return in.stages.feed(ctx, func(number int) (work.Item, error) {
		if reader == nil {
			made, err := in.file.Reader()
			if err != nil {
				return work.Item{}, err
			}
			reader = made
		}
		r, err := reader.At(in.offsets[number], number+1)
		if err != nil {
			return work.Item{}, err
		}
		item, problem := in.read(r)
		if problem != nil {
			problem.Text += " (the file changed since it was checked)"
			return work.Item{}, r.Wrong(in.x.cfg.Items.Path, problem)
		}
		return in.item(item)
	})
}

// feedStdin reads standard input and checks it as it comes.
func (in *input) feedStdin(ctx context.Context) iter.Seq2[work.Item, error] {
	return func(yield func(work.Item, error) bool) {
		seen := work.Index{}
		for r, err := range rows.Stream(ctx, in.x.cfg.Items.Stdin) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(work.Item{}, &fault.FieldError{Field: "Items", Err: err})
				return
			}
			row, problem := in.read(r)
			if problem == nil {
				if other, ok := seen.Add(row.number, []byte(row.id), row.hash); !ok {
					problem = row.twice(other)
				}
			}
			if problem != nil {
				yield(work.Item{}, r.Wrong("-", problem))
				return
			}
			in.mu.Lock()
			in.arrived++
			last := in.x.cfg.Items.Limit > 0 && in.arrived == in.x.cfg.Items.Limit
			in.mu.Unlock()
			already, err := in.recorded(row)
			if err == nil && already {
				if last {
					break
				}
				continue
			}
			item := work.Item{}
			if err == nil {
				item, err = in.item(row)
			}
			if !yield(item, err) || err != nil {
				return
			}
			if last {
				break
			}
		}
		in.mu.Lock()
		in.ended = true
		in.mu.Unlock()
	}
}

// recorded says whether an item of standard input has its result.
func (in *input) recorded(r *row) (bool, error) {
	number, ok := in.index.Find([]byte(r.id))
	if !ok {
		return false, nil
	}
	if !in.index.Same(number, r.hash) && in.x.cfg.Items.Changed == rows.ChangedRefused {
		return false, &rows.ChangedError{Path: "-", Array: r.array, Number: r.number + 1, ID: r.id}
	}
	return in.index.Same(number, r.hash) || in.x.cfg.Items.Changed == rows.ChangedKeep, nil
}

// settle says that an item of a file has its result.
func (in *input) settle(number int, ok bool) {
	if in.file != nil {
		in.stages.settle(number, ok)
	}
}

// blocked is what did not run because of what it needs.
func (in *input) blocked() []Blocked {
	if in.file == nil {
		return nil
	}
	return in.stages.blocked()
}
