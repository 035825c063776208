-- All tables of the hub's database, those of the agent included. Statements have an empty line between them.

CREATE TABLE hub (
    id VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE user (
    id VARCHAR NOT NULL,
    display_name VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    language VARCHAR,
    time_zone VARCHAR,
    created_at VARCHAR(24) NOT NULL,
    password VARCHAR,
    removed_at VARCHAR(24),
    PRIMARY KEY (id)
);

CREATE TABLE home_layout (
    user VARCHAR NOT NULL,
    layout VARCHAR NOT NULL,
    PRIMARY KEY (user),
    FOREIGN KEY (user) REFERENCES user (id)
);

CREATE TABLE retired_device (
    id VARCHAR NOT NULL,
    retired_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE token (
    jti VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    scope VARCHAR NOT NULL,
    issued_at VARCHAR(24) NOT NULL,
    expires_at VARCHAR(24) NOT NULL,
    used_at VARCHAR(24),
    revoked_at VARCHAR(24),
    replaces VARCHAR,
    key_id VARCHAR,
    audience VARCHAR NOT NULL,
    is_session BOOLEAN DEFAULT 0 NOT NULL,
    PRIMARY KEY (jti)
);

CREATE INDEX ix_token_subject ON token (subject);

CREATE TABLE audit (
    id INTEGER NOT NULL,
    at VARCHAR(24) NOT NULL,
    call VARCHAR NOT NULL,
    user VARCHAR NOT NULL,
    actor JSON NOT NULL,
    device VARCHAR NOT NULL,
    skill VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    arguments VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL,
    token VARCHAR DEFAULT '' NOT NULL,
    token_name VARCHAR DEFAULT '' NOT NULL,
    through VARCHAR,
    confirmed_by VARCHAR,
    read_only BOOLEAN DEFAULT 0 NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX ix_audit_at ON audit (at);

CREATE TABLE turn (
    user VARCHAR NOT NULL,
    turn VARCHAR NOT NULL,
    conversation VARCHAR,
    device VARCHAR,
    through VARCHAR,
    agent VARCHAR NOT NULL,
    question VARCHAR NOT NULL,
    answer VARCHAR,
    mode VARCHAR,
    did JSON NOT NULL,
    untrusted BOOLEAN NOT NULL,
    state VARCHAR NOT NULL,
    instance VARCHAR NOT NULL,
    at VARCHAR(24) NOT NULL,
    ended_at VARCHAR(24),
    origin VARCHAR DEFAULT 'person' NOT NULL,
    outcome VARCHAR,
    problem VARCHAR DEFAULT '' NOT NULL,
    reason VARCHAR DEFAULT '' NOT NULL,
    replaced_by VARCHAR,
    files JSON DEFAULT '[]' NOT NULL,
    PRIMARY KEY (user, turn)
);

CREATE INDEX ix_turn_conversation ON turn (user, conversation, at);

CREATE INDEX ix_turn_through ON turn (user, through, conversation);

CREATE TABLE home_topic (
    broker VARCHAR NOT NULL,
    topic VARCHAR NOT NULL,
    PRIMARY KEY (broker, topic)
);

CREATE TABLE device (
    id VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    display_name VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    aliases JSON NOT NULL,
    area VARCHAR,
    floor VARCHAR,
    public_key JSON,
    key_id VARCHAR,
    epoch BIGINT NOT NULL,
    connection INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    ended BOOLEAN NOT NULL,
    last_seen VARCHAR(24),
    revoked_at VARCHAR(24),
    created_at VARCHAR(24) NOT NULL,
    may_confirm BOOLEAN,
    trusted BOOLEAN DEFAULT 0 NOT NULL,
    shared BOOLEAN DEFAULT 0 NOT NULL,
    scope VARCHAR DEFAULT 'chat' NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY (owner) REFERENCES user (id),
    UNIQUE ("key")
);

CREATE INDEX ix_device_owner ON device (owner);

CREATE TABLE enrolment (
    locator VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    device_id VARCHAR NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    expires_at VARCHAR(24) NOT NULL,
    used_at VARCHAR(24),
    PRIMARY KEY (locator),
    FOREIGN KEY (device_id) REFERENCES device (id)
);

CREATE INDEX ix_enrolment_device_id ON enrolment (device_id);

CREATE TABLE registration (
    device_id VARCHAR NOT NULL,
    skill VARCHAR NOT NULL,
    key_id VARCHAR NOT NULL,
    payload VARCHAR NOT NULL,
    PRIMARY KEY (device_id, skill),
    FOREIGN KEY (device_id) REFERENCES device (id)
);

CREATE TABLE approval (
    device_id VARCHAR NOT NULL REFERENCES device (id),
    skill VARCHAR NOT NULL,
    known JSON NOT NULL,
    PRIMARY KEY (device_id, skill)
);

CREATE TABLE event (
    id INTEGER PRIMARY KEY NOT NULL,
    user VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    data JSON NOT NULL,
    at VARCHAR(24) NOT NULL
);

CREATE INDEX ix_event_kept ON event (user, kind, id);

CREATE TABLE capture (
    id VARCHAR PRIMARY KEY NOT NULL,
    instance VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    spec JSON NOT NULL,
    root VARCHAR NOT NULL,
    is_stopped BOOLEAN NOT NULL,
    messages INTEGER NOT NULL,
    gaps INTEGER NOT NULL,
    begun_at FLOAT NOT NULL,
    created_at VARCHAR(24) NOT NULL
);

CREATE TABLE heard (
    instance VARCHAR NOT NULL,
    link VARCHAR NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (instance, link)
);

CREATE TABLE watcher (
    name VARCHAR PRIMARY KEY NOT NULL,
    instance VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    state VARCHAR NOT NULL,
    instruction VARCHAR NOT NULL,
    topics JSON NOT NULL,
    every_s FLOAT,
    schedule VARCHAR,
    missed VARCHAR NOT NULL,
    predicate VARCHAR,
    note VARCHAR NOT NULL,
    allow JSON NOT NULL,
    approved_by VARCHAR,
    dry_run BOOLEAN NOT NULL,
    snoozed_until VARCHAR(24),
    actions_per_hour INTEGER,
    done JSON NOT NULL,
    fired INTEGER NOT NULL,
    evaluations INTEGER NOT NULL,
    model_calls INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    next_at VARCHAR(24),
    approver VARCHAR,
    approved_through VARCHAR,
    armed BOOLEAN DEFAULT 1 NOT NULL,
    pending VARCHAR DEFAULT '' NOT NULL,
    "then" JSON DEFAULT '[]' NOT NULL,
    step INTEGER,
    step_at VARCHAR(24),
    title VARCHAR DEFAULT '' NOT NULL
);

CREATE TABLE watcher_decision (
    id INTEGER PRIMARY KEY NOT NULL,
    watcher VARCHAR NOT NULL,
    at VARCHAR(24) NOT NULL,
    state VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    seen JSON NOT NULL,
    actions JSON NOT NULL,
    tokens INTEGER NOT NULL,
    dry_run BOOLEAN NOT NULL
);

CREATE INDEX ix_watcher_decision ON watcher_decision (watcher, id);

CREATE TABLE push_subscription (
    id VARCHAR PRIMARY KEY NOT NULL,
    user VARCHAR NOT NULL,
    token VARCHAR NOT NULL,
    endpoint VARCHAR NOT NULL,
    point VARCHAR NOT NULL,
    secret VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    language VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    created_at VARCHAR(24) NOT NULL
);

CREATE INDEX ix_push_subscription_user ON push_subscription (user);

CREATE TABLE timer (
    id VARCHAR PRIMARY KEY NOT NULL,
    instance VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    due VARCHAR(24) NOT NULL,
    schedule VARCHAR,
    missed VARCHAR NOT NULL,
    call JSON,
    left_s FLOAT
);

CREATE TABLE conversation (
    user VARCHAR NOT NULL,
    conversation VARCHAR NOT NULL,
    title VARCHAR,
    PRIMARY KEY (user, conversation)
);

CREATE TABLE conversation_summary (
    user VARCHAR NOT NULL,
    conversation VARCHAR NOT NULL,
    reader VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    turn VARCHAR NOT NULL,
    at VARCHAR(24) NOT NULL,
    exchanges INTEGER NOT NULL,
    untrusted BOOLEAN NOT NULL,
    skilled BOOLEAN NOT NULL,
    PRIMARY KEY (user, conversation, reader)
);

CREATE VIRTUAL TABLE turn_words USING fts5(
    question, answer, content = 'turn', tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TRIGGER turn_words_of_new AFTER INSERT ON turn BEGIN
    INSERT INTO turn_words(rowid, question, answer) VALUES (new.rowid, new.question, new.answer);
END;

CREATE TRIGGER turn_words_of_changed AFTER UPDATE OF question, answer ON turn BEGIN
    INSERT INTO turn_words(turn_words, rowid, question, answer)
        VALUES ('delete', old.rowid, old.question, old.answer);
    INSERT INTO turn_words(rowid, question, answer) VALUES (new.rowid, new.question, new.answer);
END;

CREATE TRIGGER turn_words_of_gone AFTER DELETE ON turn BEGIN
    INSERT INTO turn_words(turn_words, rowid, question, answer)
        VALUES ('delete', old.rowid, old.question, old.answer);
END;

CREATE TABLE password_code (
    user VARCHAR PRIMARY KEY NOT NULL REFERENCES user (id),
    digest VARCHAR NOT NULL,
    expires_at VARCHAR(24) NOT NULL
);

CREATE INDEX ix_turn_at ON turn (at);

CREATE TABLE turn_trace (
    user VARCHAR NOT NULL,
    turn VARCHAR NOT NULL,
    at VARCHAR(24) NOT NULL,
    model VARCHAR,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost FLOAT,
    ms JSON NOT NULL,
    left_out INTEGER NOT NULL,
    spans BLOB NOT NULL,
    PRIMARY KEY (user, turn)
);

CREATE TABLE home_assistant_exposure (
    path VARCHAR PRIMARY KEY NOT NULL,
    shown BOOLEAN NOT NULL,
    user VARCHAR NOT NULL,
    at VARCHAR(24) NOT NULL
);

CREATE TABLE replica (
    instance VARCHAR PRIMARY KEY NOT NULL,
    url VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    on_bus BOOLEAN DEFAULT 0 NOT NULL,
    started_at VARCHAR(24) NOT NULL,
    seen_at VARCHAR(24) NOT NULL,
    term BIGINT NOT NULL DEFAULT 0,
    leads_since VARCHAR(24)
);

CREATE TABLE shared_file (
    name VARCHAR PRIMARY KEY NOT NULL,
    digest VARCHAR NOT NULL,
    content BLOB NOT NULL
);
