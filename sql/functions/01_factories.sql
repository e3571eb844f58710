-- The factories that mmdb ships; the owner adds others with register_factory.
INSERT INTO mmdb.factory (name, target)
VALUES
('linear', 'mmdb.graph.factories:linear'),
('mlp', 'mmdb.graph.factories:mlp'),
('cnn', 'mmdb.graph.factories:cnn'),
('resnet', 'mmdb.graph.factories:resnet'),
('transformer', 'mmdb.graph.factories:transformer'),
('tabular', 'mmdb.graph.factories:tabular'),
('timm', 'mmdb.graph.libraries:timm'),
('torchvision', 'mmdb.graph.libraries:torchvision'),
('transformers', 'mmdb.graph.libraries:transformers')
ON CONFLICT (name) DO NOTHING;
