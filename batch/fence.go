package batch

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

const fence = "```"

// jsonIn returns the JSON that an answer's text is: the whole of it, or else the content of the first block between
// fences of Markdown that is JSON, whatever language the block names and whatever stands around it. A block whose end
// is missing counts. It returns nil if there is none.
func jsonIn(text string) []byte {
	whole := bytes.TrimSpace([]byte(strings.TrimPrefix(text, "\ufeff")))
	if jsonscan.Valid(whole) {
		return whole
	}
	rest := whole
	for {
		i := bytes.Index(rest, []byte(fence))
		if i < 0 {
			return nil
		}
		rest = rest[i+len(fence):]
		if doc := fenced(rest); doc != nil {
			return doc
		}
	}
}

// fenced returns the JSON value that a block begins with, if that is all there is in it. What ends the block is looked
// for behind the value, not before: a text in it may hold fences, too.
func fenced(block []byte) []byte {
	line, _, _ := bytes.Cut(block, []byte("\n"))
	label := bytes.IndexAny(line, " \t\r{[\"")
	if label < 0 {
		label = len(line)
	}
	if doc := valueOf(block[label:]); doc != nil {
		return doc
	}
	if label < len(line) { // more than one word beside the fence
		return valueOf(block[len(line):])
	}
	return nil
}

// valueOf returns the value that b begins with, if a fence or nothing follows.
func valueOf(b []byte) []byte {
	s := jsonscan.New(b)
	value := s.Span()
	if value == nil {
		return nil
	}
	rest := bytes.TrimSpace(b[s.Offset():])
	if len(rest) > 0 && !bytes.HasPrefix(rest, []byte(fence)) || !utf8.Valid(value) {
		return nil
	}
	return value
}
