package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/rows"
)

// Command is what is run for each item.
//
// In its words, {} stands for the item and {name} for a member of it; {id}, {line} and {dir} stand for the item's id, its line
// and its directory where it has no members of these names. A value stays within its word, whatever it holds. A word that
// is a JSON object or array is passed on as it is: nothing is ever spliced into JSON. {{name}} is {name} itself.
type Command struct {
	Args []string // the program and what it is told

	// Stdin gives each item on standard input, with a newline behind it. Else that is closed.
	Stdin bool

	Env     []string      // its environment; nil is none
	Timeout time.Duration // of one try; 0 is none

	// Persistent has each process take one item after the other, as JSON lines.
	Persistent bool

	// Run runs it. Default: command.Run. That of a *command.Guard ends all that commands leave behind.
	Run func(context.Context, command.Spec) (command.Result, error)
}

const commandGrace = 5 * time.Second // between TERM and KILL

// template is a Command whose words were read.
type template struct {
	words  [][]piece
	behind int     // words from here on may begin with a dash that an item brought
	values bool    // some word holds a value
	file   []piece // of Config.ResultFile; nil is none
}

// piece is a part of a word: a text as it is, or the name of a value.
type piece struct {
	text  string
	value bool
}

// parse reads the words of a command.
func (c *Command) parse() (*template, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, errors.New("no command is given")
	}
	for _, word := range c.Args {
		if strings.ContainsRune(word, 0) {
			return nil, errors.New("the command contains a NUL character, which an argument cannot contain")
		}
	}
	t := &template{behind: len(c.Args)}
	for i, word := range c.Args {
		if word == "--" && i > 0 && t.behind == len(c.Args) {
			t.behind = i + 1
		}
		p := pieces(word)
		t.words = append(t.words, p)
		t.values = t.values || slices.ContainsFunc(p, func(p piece) bool { return p.value })
	}
	if len(t.words[0]) != 1 || t.words[0][0].value {
		return nil, errors.New("the program name comes from the item: put a fixed program, such as env or sh, before it")
	}
	return t, nil
}

// pieces parts a word where values stand in it.
func pieces(word string) []piece {
	if word != "{}" && isJSON(word) {
		return []piece{{text: word}}
	}
	var all []piece
	text := func(s string) {
		if n := len(all); n > 0 && !all[n-1].value {
			all[n-1].text += s
		} else {
			all = append(all, piece{text: s})
		}
	}
	for rest := word; ; {
		at := strings.IndexByte(rest, '{')
		if at < 0 {
			if rest != "" || len(all) == 0 {
				text(rest)
			}
			return all
		}
		if at > 0 {
			text(rest[:at])
		}
		rest = rest[at:]
		if name, ok := placeholder(rest[1:]); ok && strings.HasPrefix(rest, "{{") && strings.HasPrefix(rest[len(name)+3:], "}") {
			text("{" + name + "}")
			rest = rest[len(name)+4:]
			continue
		}
		if name, ok := placeholder(rest); ok {
			all = append(all, piece{text: name, value: true})
			rest = rest[len(name)+2:]
			continue
		}
		text("{")
		rest = rest[1:]
	}
}

// placeholder returns the name at the beginning of a text such as {name}. The name may be empty.
func placeholder(s string) (name string, ok bool) {
	if !strings.HasPrefix(s, "{") {
		return "", false
	}
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", false
	}
	name = s[1:end]
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '-' && r != '.' && (r < '0' || r > '9')) {
			return "", false
		}
	}
	return name, true
}

func isJSON(word string) bool {
	word = strings.TrimSpace(word)
	return word != "" && (word[0] == '{' || word[0] == '[') && json.Valid([]byte(word))
}

// values are what the members of an item are for a command.
type values struct {
	item   string // the whole: a line of text, or its JSON
	id     string
	line   int
	dir    string
	fields map[string]string // nil: it has no members
}

// find returns the value of a name.
func (v *values) find(name string) (string, bool) {
	if name == "" {
		return v.item, true
	}
	if text, ok := v.fields[name]; ok {
		return text, true
	}
	switch name {
	case "id":
		return v.id, true
	case "line":
		return strconv.Itoa(v.line), true
	case "dir":
		return v.dir, true
	}
	return "", false
}

// fill returns the words of the command for an item.
func (t *template) fill(v *values) ([]string, *rows.Problem) {
	args := make([]string, len(t.words))
	for i, word := range t.words {
		text, bad := v.expand(word)
		if bad != nil {
			return nil, bad
		}
		if i > 0 && i < t.behind && word[0].value && strings.HasPrefix(text, "-") {
			return nil, &rows.Problem{
				Text: fmt.Sprintf("argument %d of the command begins with a dash that comes from the item: %s", i+1, strconv.Quote(prose.Clip(text, 60))),
				Hint: "put -- before the item, so that the program does not read it as a flag, or use --stdin",
			}
		}
		args[i] = text
	}
	return args, nil
}

// expand returns a word for an item.
func (v *values) expand(word []piece) (string, *rows.Problem) {
	var b strings.Builder
	for _, p := range word {
		if !p.value {
			b.WriteString(p.text)
			continue
		}
		text, ok := v.find(p.text)
		if !ok {
			return "", &rows.Problem{Text: fmt.Sprintf("the item has no field %q for {%s}", p.text, p.text), Hint: v.known(p.text)}
		}
		if strings.ContainsRune(text, 0) {
			return "", &rows.Problem{Text: fmt.Sprintf("{%s} contains a NUL character, which an argument cannot contain", p.text), Hint: "send the item on standard input with --stdin"}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// known says which names there are.
func (v *values) known(name string) string {
	if len(v.fields) == 0 {
		return fmt.Sprintf("use {} for the whole item, which is plain text, or write {{%s}} for a literal {%s}", name, name)
	}
	names := make([]string, 0, len(v.fields))
	for name := range v.fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Sprintf("use a field of the item (%s), or write {{%s}} for a literal {%s}", strings.Join(names[:min(len(names), 20)], ", "), name, name)
}

// plain is a JSON value as a word: a string without its quotes, null as nothing, anything else as it is written.
func plain(value []byte) string {
	switch {
	case len(value) > 0 && value[0] == '"':
		return string(jsonscan.Unquote(value))
	case bytes.Equal(value, []byte("null")):
		return ""
	}
	return string(value)
}
