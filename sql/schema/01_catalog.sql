-- What the owner configures: settings, the factories that may build models, and other functions.

CREATE TABLE mmdb.migration (
    number integer NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT migration_pkey PRIMARY KEY (number)
);
COMMENT ON TABLE mmdb.migration IS 'The schema that this database was made with (0), and each published change since (1, 2, …).';
COMMENT ON COLUMN mmdb.migration.digest IS 'SHA-256 of the file, in hex.';

CREATE TABLE mmdb.setting (
    name text NOT NULL,
    value text NOT NULL,
    CONSTRAINT setting_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE mmdb.setting IS 'The owner''s configuration; passwords belong into a password file, not here.';

CREATE TABLE mmdb.factory (
    name text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT factory_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE mmdb.factory IS 'Allow-list of the Python callables that build models; the only way code enters.';
COMMENT ON COLUMN mmdb.factory.target IS 'package.module:callable, returning a torch.nn.Module.';

CREATE TABLE mmdb.function (
    name text NOT NULL,
    kind text NOT NULL,
    target text NOT NULL DEFAULT 'tokenizer.json',
    created_at timestamptz NOT NULL DEFAULT now(),
    definition text,
    CONSTRAINT function_pkey PRIMARY KEY (kind, name),
    CONSTRAINT function_kind_check CHECK (kind IN ('tokenizer', 'augmentation', 'loss', 'metric')),
    CONSTRAINT function_definition_check CHECK ((definition IS NULL) = (target <> 'tokenizer.json')),
    CONSTRAINT function_text_check CHECK (kind = 'tokenizer' OR target <> 'tokenizer.json')
);
COMMENT ON TABLE mmdb.function IS 'Allow-list of the Python callables that datasets and runs may name besides factories.';
COMMENT ON COLUMN mmdb.function.target IS 'package.module:callable; of a tokenizer that is data: tokenizer.json.';
COMMENT ON COLUMN mmdb.function.definition IS 'The text of a tokenizer.json; null of code.';
