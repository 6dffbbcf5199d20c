package config

type (
	constraint struct{}
	definition struct{}
	entry      struct{}
	binding    struct{}
	block      struct{}
	needsList  struct{}
)
