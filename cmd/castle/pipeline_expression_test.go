//go:build integration

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// expression evaluates the expressions of a workflow, as far as castle's use them: names, texts, comparisons,
// && and ||, and a few functions. A name that is not known is empty, as in GitHub.
type expression struct {
	tokens []string
	names  map[string]string
	failed bool // an earlier step or job
}

var expressionToken = regexp.MustCompile(`'[^']*'|==|!=|&&|\|\||[!()]|[A-Za-z_][\w.-]*`)

// evaluate returns the value of an expression, which may stand in ${{ }}.
func evaluate(text string, names map[string]string, failed bool) string {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "${{"); ok {
		text = strings.TrimSuffix(inner, "}}")
	}
	e := &expression{tokens: expressionToken.FindAllString(text, -1), names: names, failed: failed}
	value := e.or()
	if len(e.tokens) > 0 {
		panic(fmt.Sprintf("expression %q: %q is left", text, e.tokens))
	}
	return value
}

// substitute replaces each ${{ }} of a text by its value.
func substitute(text string, names map[string]string) string {
	return templateExpression.ReplaceAllStringFunc(text, func(one string) string {
		return evaluate(one, names, false)
	})
}

var templateExpression = regexp.MustCompile(`\$\{\{.*?\}\}`)

func isTrue(value string) bool { return value != "" && value != "false" }

func boolean(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func (e *expression) next(tokens ...string) string {
	for _, t := range tokens {
		if len(e.tokens) > 0 && e.tokens[0] == t {
			e.tokens = e.tokens[1:]
			return t
		}
	}
	return ""
}

func (e *expression) or() string {
	value := e.and()
	for e.next("||") != "" {
		if other := e.and(); !isTrue(value) {
			value = other
		}
	}
	return value
}

func (e *expression) and() string {
	value := e.comparison()
	for e.next("&&") != "" {
		if other := e.comparison(); isTrue(value) {
			value = other
		}
	}
	return value
}

func (e *expression) comparison() string {
	value := e.unary()
	switch e.next("==", "!=") {
	case "==":
		return boolean(value == e.unary())
	case "!=":
		return boolean(value != e.unary())
	}
	return value
}

func (e *expression) unary() string {
	switch {
	case e.next("!") != "":
		return boolean(!isTrue(e.unary()))
	case e.next("(") != "":
		value := e.or()
		e.expect(")")
		return value
	}
	if len(e.tokens) == 0 {
		panic("expression ends early")
	}
	token := e.tokens[0]
	e.tokens = e.tokens[1:]
	if text, ok := strings.CutPrefix(token, "'"); ok {
		return strings.TrimSuffix(text, "'")
	}
	if e.next("(") == "" {
		return e.names[token]
	}
	e.expect(")")
	switch token {
	case "always":
		return "true"
	case "cancelled":
		return "false"
	case "success":
		return boolean(!e.failed)
	case "failure":
		return boolean(e.failed)
	}
	panic("unknown function " + token)
}

func (e *expression) expect(token string) {
	if e.next(token) == "" {
		panic(fmt.Sprintf("%q is missing before %q", token, e.tokens))
	}
}
