package provider

import (
	"maps"
	"slices"
)

// contentFold folds the chunks of Gemini, each of which is a whole answer with the next parts of the content
// (https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent).
type contentFold struct {
	top        map[string]any
	candidates map[int]*candidate
}

// candidate is one of the answers that were asked for.
type candidate struct {
	members map[string]any
	content map[string]any // without its parts
	parts   []map[string]any
}

func (f *contentFold) event(chunk map[string]any) {
	list, _ := chunk["candidates"].([]any)
	delete(chunk, "candidates")
	replace(f.top, chunk)
	for _, item := range list {
		next, ok := item.(map[string]any)
		if !ok {
			continue
		}
		i := index(next["index"])
		c := f.candidates[i]
		if c == nil {
			c = &candidate{members: map[string]any{}}
			f.candidates[i] = c
		}
		if content, ok := next["content"].(map[string]any); ok {
			c.add(content)
		}
		delete(next, "content")
		replace(c.members, next)
	}
}

// replace takes over what a later chunk says: its counts, ratings and reasons are those of all so far.
func replace(members, later map[string]any) {
	for k, v := range later {
		if v != nil {
			members[k] = v
		}
	}
}

// add takes the next parts of a candidate's content.
func (c *candidate) add(content map[string]any) {
	parts, _ := content["parts"].([]any)
	delete(content, "parts")
	if c.content == nil {
		c.content = map[string]any{}
	}
	replace(c.content, content)
	for _, item := range parts {
		if part, ok := item.(map[string]any); ok && !c.extend(part) {
			if s, ok := part["text"].(string); ok {
				part["text"] = &text{b: []byte(s)}
			}
			c.parts = append(c.parts, part)
		}
	}
}

// extend adds a part that goes on with the text of the last one, if it does. Thoughts are kept apart from the answer.
func (c *candidate) extend(part map[string]any) bool {
	more, ok := part["text"].(string)
	if !ok || len(c.parts) == 0 {
		return false
	}
	last := c.parts[len(c.parts)-1]
	t, ok := last["text"].(*text)
	if !ok || (last["thought"] == true) != (part["thought"] == true) || last["thoughtSignature"] != nil {
		return false // a signature vouches for its part as it is
	}
	t.b = append(t.b, more...)
	delete(part, "text")
	maps.Copy(last, part)
	return true
}

func (f *contentFold) message() []byte {
	if len(f.candidates) > 0 { // a blocked prompt has none
		list := []any{}
		for _, i := range slices.Sorted(maps.Keys(f.candidates)) {
			c := f.candidates[i]
			if c.content != nil {
				if c.parts != nil {
					c.content["parts"] = c.parts
				}
				c.members["content"] = c.content
			}
			list = append(list, c.members)
		}
		f.top["candidates"] = list
	}
	return encode(f.top)
}
