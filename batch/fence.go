package batch

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

const fence = "```"

// The marks around the thoughts that some models put into the text before their answer, where the server does not take them out. Their names
// end in a word for thoughts, or are channels of Harmony. Chat templates may hold the first mark, so that the text has only the second.
const (
	thoughtsWord  = `(?:think(?:ing)?|thoughts?|reasoning|reflection|analysis|scratchpad|monologue)`
	thoughtsFirst = `(?i:<[\w:]*` + thoughtsWord + `\b[^<>]*>|<\|(?:(?:begin|start)\w*)?` + thoughtsWord + `\|>|\[THINK\]|◁think▷|<\|channel\|>)`
)

var (
	thoughtsStart = regexp.MustCompile(thoughtsFirst)
	thoughtsBegin = regexp.MustCompile(`^(?:<\|start\|>\w*)?` + thoughtsFirst)
	thoughtsEnd   = regexp.MustCompile(`(?i:</[\w:]*` + thoughtsWord + `>|<\|(?:/|end)\w*` + thoughtsWord + `\|>|\[/THINK\]|◁/think▷` +
		`|<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>)`)
	around = regexp.MustCompile(`^(?:<\|?\w[^<>]*>\s*)+|(?:\s*<[/|][^<>]*>)+$`) // the marks of an element or of special tokens
)

// maxThoughts bounds the ends of thoughts in one text that are tried.
const maxThoughts = 8

// jsonIn returns the JSON that an answer's text is: the whole of it or of what follows the last thoughts, marks around it aside, or else the
// content of the first block between fences of Markdown there that is JSON, whatever language the block names and whatever stands around
// it. A block whose end is missing counts. It returns nil if there is none, as in thoughts that do not end.
func jsonIn(text string) []byte {
	whole := bytes.TrimSpace([]byte(strings.TrimPrefix(text, "\ufeff")))
	if jsonscan.Valid(whole) {
		return whole
	}
	ends := thoughtsEnd.FindAllIndex(whole, -1)
	if n := len(ends); n > 0 && ends[n-1][1] == len(whole) { // no answer follows the last thoughts: it may be before them
		if starts := thoughtsStart.FindAllIndex(whole, -1); len(starts) > 0 {
			whole = bytes.TrimSpace(whole[:starts[len(starts)-1][0]])
			ends = thoughtsEnd.FindAllIndex(whole, -1)
		}
	}
	ends = ends[max(0, len(ends)-maxThoughts):]
	for i := len(ends); i >= 0; i-- {
		rest := whole
		if i > 0 {
			rest = bytes.TrimSpace(whole[ends[i-1][1]:])
		}
		if thoughtsBegin.Match(rest) {
			continue
		}
		// A mark further on ends no thoughts if it is part of the JSON.
		if doc := document(rest, i > 0); doc != nil && (i == len(ends) || thoughtsEnd.Match(doc)) {
			return doc
		}
	}
	return nil
}

// document returns the JSON that a text is, without marks around it, or that its first block of JSON is; nil if there is none. A mark
// without its end may begin thoughts, except after thoughts.
func document(rest []byte, after bool) []byte {
	bare := rest
	if bytes.HasSuffix(rest, []byte(">")) || after && bytes.HasPrefix(rest, []byte("<")) {
		bare = around.ReplaceAll(rest, nil)
	}
	if jsonscan.Valid(bare) {
		return bare
	}
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
