package rows

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// parquetMagic begins and ends a Parquet file.
const parquetMagic = "PAR1"

// isParquet reports whether a file begins as one of Parquet.
func isParquet(file io.ReaderAt) bool {
	head := make([]byte, len(parquetMagic))
	_, err := file.ReadAt(head, 0)
	return err == nil && string(head) == parquetMagic
}

// unpackParquet writes the rows of a Parquet file as JSON lines into a file of their own, which dropSpool removes. columns says what is
// wrong with the names of the columns; nil takes any.
func unpackParquet(path string, file io.ReaderAt, size int64, columns func([]string) *Problem) (out *os.File, err error) {
	tmp, err := newSpool(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if v := recover(); v != nil { // the library panics at some damaged files
			err = notParquet(path, fmt.Errorf("%v", v))
		}
		if err != nil {
			dropSpool(tmp)
			out = nil
		}
	}()
	from, err := parquet.OpenFile(file, size)
	if err != nil {
		return nil, notParquet(path, err)
	}
	root, bad := parquetSchema(from.Metadata().Schema)
	if bad == nil && columns != nil {
		bad = columns(root.names())
	}
	if bad != nil {
		return nil, convertible(path, bad).At(path, 0)
	}
	return tmp, copyParquet(path, tmp, from, root)
}

func notParquet(path string, err error) error {
	return fmt.Errorf("%s is not a whole Parquet file: %w", path, err)
}

// convertible completes a problem without a hint by the command that writes the file as JSON lines.
func convertible(path string, p *Problem) *Problem {
	if p.Hint == "" {
		text := strings.NewReplacer("'", "''", `\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`") // in SQL, in double quotes of a shell
		to := strings.TrimSuffix(path, filepath.Ext(path)) + ".jsonl"
		p.Hint = fmt.Sprintf(`convert the file: duckdb -c "COPY (FROM '%s') TO '%s' (FORMAT json)"`, text.Replace(path), text.Replace(to))
	}
	return p
}

// copyParquet writes the rows of a Parquet file as JSON lines.
func copyParquet(path string, to io.Writer, from *parquet.File, root *parquetNode) error {
	w := bufio.NewWriterSize(to, 256<<10)
	r := parquetRecord{ends: make([]int, root.leaves), next: make([]int, root.leaves)}
	number := 0
	for _, group := range from.RowGroups() {
		err := eachRow(group, func(row parquet.Row) error {
			number++
			err := r.read(root, row)
			if problem, ok := errors.AsType[*parquetError](err); ok {
				return convertible(path, problem.problem()).At(path, number)
			} else if err != nil {
				return notParquet(path, err)
			}
			if _, err := w.Write(append(r.line, '\n')); err != nil {
				return &UnpackError{Path: path, Dir: os.TempDir(), Err: err}
			}
			return nil
		}, func(err error) error { return notParquet(path, err) })
		if err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return &UnpackError{Path: path, Dir: os.TempDir(), Err: err}
	}
	return nil
}

// eachRow calls f for the rows of a group until it returns an error. damaged makes the error of what cannot be read.
func eachRow(group parquet.RowGroup, f func(parquet.Row) error, damaged func(error) error) error {
	in := group.Rows()
	defer in.Close()
	some := make([]parquet.Row, 64)
	for {
		n, err := in.ReadRows(some)
		for _, row := range some[:n] {
			if err := f(row); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return damaged(err)
		}
	}
}

// parquetRecord writes the values of a record, which come column by column, as JSON.
type parquetRecord struct {
	row  parquet.Row
	next []int // the next value of each leaf
	ends []int // and where its values end
	line []byte
}

// errParquetLevels is of values that do not fit the schema.
var errParquetLevels = errors.New("its columns do not have the same records")

// read writes a row into line.
func (r *parquetRecord) read(root *parquetNode, row parquet.Row) error {
	r.row, r.line = row, r.line[:0]
	at := 0
	for i := range r.next {
		for r.next[i] = at; at < len(row) && row[at].Column() == i; at++ {
		}
		r.ends[i] = at
	}
	if _, err := r.item(root); err != nil {
		return err
	}
	for i := range r.next {
		if r.next[i] != r.ends[i] {
			return errParquetLevels
		}
	}
	return nil
}

// value appends what a node has here: null, one item, or a repeated one's items. It says whether it is null.
func (r *parquetRecord) value(n *parquetNode) (null bool, err error) {
	if r.next[n.leaf] == r.ends[n.leaf] {
		return false, errParquetLevels
	}
	if r.row[r.next[n.leaf]].DefinitionLevel() < n.definition { // one value for each leaf says so
		for i := n.leaf; i < n.leaf+n.leaves; i++ {
			r.next[i]++
		}
		if n.repeated {
			r.line = append(r.line, n.open()...)
			r.line = append(r.line, n.close()...)
			return false, nil
		}
		r.line = append(r.line, "null"...)
		return true, nil
	}
	if !n.repeated {
		return r.item(n)
	}
	r.line = append(r.line, n.open()...)
	for {
		if _, err := r.item(n); err != nil {
			return false, err
		}
		if at := r.next[n.leaf]; at == r.ends[n.leaf] || r.row[at].RepetitionLevel() != n.repetition {
			r.line = append(r.line, n.close()...)
			return false, nil
		}
		r.line = append(r.line, ',')
	}
}

// item appends one item of a node, and says whether it is null.
func (r *parquetRecord) item(n *parquetNode) (null bool, err error) {
	switch n.kind {
	case parquetWrapper:
		return r.value(n.children[0])
	case parquetEntry:
		if null, err := r.value(n.children[0]); err != nil || null {
			if err == nil {
				err = &parquetError{n.children[0], "a key is null"}
			}
			return false, err
		}
		r.line = append(r.line, ':')
		_, err = r.value(n.children[1])
		return false, err
	case parquetStruct:
		return false, r.members(n)
	}
	at := r.next[n.leaf]
	if at == r.ends[n.leaf] {
		return false, errParquetLevels
	}
	r.next[n.leaf]++
	var problem string
	if r.line, problem = n.append(r.line, r.row[at]); problem != "" {
		return false, &parquetError{n, problem}
	}
	return false, nil
}

// members appends the members of a struct. A null is one too: templates and commands know every column of every record.
func (r *parquetRecord) members(n *parquetNode) error {
	for i, child := range n.children {
		r.line = append(r.line, "{,"[min(i, 1)])
		r.line = append(jsonscan.AppendString(r.line, child.name), ':')
		if _, err := r.value(child); err != nil {
			return err
		}
	}
	r.line = append(r.line, '}')
	return nil
}

// parquetError is of a value that JSON does not have.
type parquetError struct {
	node *parquetNode
	text string
}

// Error names the column and its type.
func (e *parquetError) Error() string { return e.problem().Text }

func (e *parquetError) problem() *Problem {
	return &Problem{Text: fmt.Sprintf("column %s of type %s: %s", quoted(e.node.path), e.node.typ, e.text)}
}
