-- No password stands in the database: one in the workers' login is taken out, and the doctor says when that one opens no longer.
UPDATE mmdb.setting
SET
    value = regexp_replace(
        regexp_replace(value, '(://[^:/@]*):[^/@]*@', '\1@'),
        '(^|[\s?&])(ssl)?password\s*=\s*(''(\\.|[^''\\])*''|[^\s&]*)&?', '\1', 'gi'
    )
WHERE name = 'worker_dsn' AND value ~* 'password\s*=|://[^/@]*:[^/@]*@';
ALTER TABLE mmdb.setting
ADD CONSTRAINT setting_password_check CHECK (name <> 'worker_dsn' OR value !~* 'password\s*=|://[^/@]*:[^/@]*@');
